"""MLServer's own kind of model around those of `work`; texts and pictures come as strings of the V2 protocol."""

import base64

import numpy as np
import work
from mlserver import MLModel
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Model(MLModel):
    async def load(self) -> bool:
        self.model = work.load()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        data = payload.inputs[0].data
        texts = [text.decode() if isinstance(text, bytes) else text for text in getattr(data, "root", data)]
        if work.WORKLOAD == "picture":
            texts = [base64.b64decode(text) for text in texts]
        rows = np.stack(self.model.predict([self.model.item(text) for text in texts]))
        output = ResponseOutput(name="y", shape=list(rows.shape), datatype="FP32", data=rows.ravel().tolist())
        return InferenceResponse(model_name=self.name, outputs=[output])
