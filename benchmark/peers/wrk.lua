-- Sends the requests that lie whole in the files of a folder, in turns; at the end a line of JSON with what came of them.
--   wrk ... URL -- FOLDER COUNT

local requests, position = {}, 0

function init(arguments)
  for number = 0, tonumber(arguments[2]) - 1 do
    local file = assert(io.open(string.format("%s/%03d", arguments[1], number), "rb"))
    requests[#requests + 1] = file:read("*a")
    file:close()
  end
end

function request()
  position = position % #requests + 1
  return requests[position]
end

function done(summary, latency)
  local failed = summary.errors
  print(string.format(
    '{"requests": %d, "lasted_us": %d, "p50_us": %d, "p99_us": %d, "refused": %d, "lost": %d, "status": %d, "timeout": %d}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    failed.connect, failed.read + failed.write, failed.status, failed.timeout))
end
