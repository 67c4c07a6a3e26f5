--[[ Puts a decision into the health table if nothing has changed since it was taken.

KEYS  1 health   2 control stream   3 failures of the processor   4 its successes
ARGV  1 processor   2 origin, 8 bytes   3 version that the decision was taken on; 0: none was there
      4 cause   5 epoch   6 state, u or d   7 failures   8 record, behind the version it is written in
      9 version of a row that is put back; 0: it gets a new one   10 until when it may run, us of this server
Reply {1 if it was put there; server time, us; what is there now: "version:epoch:state:failures:written in:record" or ""},
      or the error "LATE <server time, us>"

A new version is at least this server's ms, so that it grows on after the data were lost. A row that a newer version of the
library wrote stays as it is. ]]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[#ARGV]) then
  return redis.error_reply(string.format('LATE %.0f', now))
end
local stored = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local version, epoch = string.match(stored, '^(%d+):(%d+):')
version, epoch = version or '0', epoch or '0'
local own_version = string.match(ARGV[8], '^(%d+):')
local is_newer = tonumber(string.match(stored, '^%d+:%d+:%a:%d+:(%d+):') or 0) > tonumber(own_version)
if version ~= ARGV[3] or is_newer then
  return {0, string.format('%.0f', now), stored}
end

local lost_version = tonumber(ARGV[9])
local least = lost_version > 0 and lost_version or math.floor(now / 1000)
local next_version = string.format('%.0f', math.max(version + 1, least))
local value = table.concat({next_version, ARGV[5], ARGV[6], ARGV[7], ARGV[8]}, ':')
redis.call('HSET', KEYS[1], ARGV[1], value)
if epoch ~= ARGV[5] then
  redis.call('DEL', KEYS[3], KEYS[4])
end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', 10000, '*',
  'v', own_version, 'k', ARGV[4], 'o', ARGV[2], 'p', ARGV[1], 'r', value)
return {1, string.format('%.0f', now), value}
