--[[ Reads the health table together with the place in the control stream from which to follow it.

KEYS  1 health   2 control stream
ARGV  none
Reply {id of the last control entry, or "0-0"; server time, us; processor, value, processor, value …} ]]

local time = redis.call('TIME')
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
local reply = {last[1] and last[1][1] or '0-0', string.format('%.0f', time[1] * 1000000 + time[2])}
for _, part in ipairs(redis.call('HGETALL', KEYS[1])) do
  reply[#reply + 1] = part
end
return reply
