--[[ Puts what one sink tells of itself where whoever watches the fleet finds it, or takes it away.

KEYS  1 roster, a sorted set   2 record of the sink
ARGV  1 origin, 8 bytes   2 record; empty: the sink leaves   3 how long it holds unless told again, ms   4 most sinks
Reply 1

A score is when the sink was heard of last, ms of this server. ]]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lifetime = tonumber(ARGV[3])
-- Who leaves is dated as if long silent, so that the trim below takes it.
local at = ARGV[2] == '' and 0 or now
redis.call('ZADD', KEYS[1], string.format('%.0f', at), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - lifetime))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -tonumber(ARGV[4]) - 1)
redis.call('PEXPIRE', KEYS[1], lifetime)
if ARGV[2] == '' then
  redis.call('DEL', KEYS[2])
else
  redis.call('SET', KEYS[2], ARGV[2], 'PX', lifetime)
end
return 1
