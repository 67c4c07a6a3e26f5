--[[ Counts how calls of one processor ended, and takes it down for the fleet when that is too much.

KEYS  1 health   2 control stream   3 its failures   4 its successes
ARGV  1 processor   2 origin, 8 bytes   3 epoch in which the calls started
      4 failures: members, 14 bytes each   5 their ages in us, 8 bytes each
      6 successes, the same, oldest first   7 their ages   ("consecutive" needs the last of each run, "windowed" none)
      8 policy   9 window, us   10 failure threshold   11 failure rate   12 minimum calls   13 quorum
      14 epoch and 15 record to install if it goes down, behind the version it is written in
      16 until when it may run, us of this server
Reply {0 ignored, 1 counted, 2 taken down; failures; server time, us;
       "version:epoch:state:failures:written in:record" or ""}, or the error "LATE <server time, us>"

A time is this server's time less the age. Which call came first is decided by when they ended, not by which report was
quicker: a success clears what ended before it, and a failure that ended before the newest success does not count. What
was too much before a success takes the processor down all the same, though both come in one report. A row that a newer
version of the library wrote is left alone. ]]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[#ARGV]) then
  return redis.error_reply(string.format('LATE %.0f', now))
end
local policy, window = ARGV[8], tonumber(ARGV[9])
local stored = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local version, epoch, state = string.match(stored, '^(%d+):(%d+):(%a):')
local own_version = string.match(ARGV[15], '^(%d+):')
local is_newer = tonumber(string.match(stored, '^%d+:%d+:%a:%d+:(%d+):') or 0) > tonumber(own_version)
-- A processor that nothing is known of is up, in epoch 0.
version, epoch, state = version or '0', epoch or '0', state or 'u'

local function answer(verdict, failures, value)
  return {verdict, failures, string.format('%.0f', now), value}
end
if state ~= 'u' or epoch ~= ARGV[3] or is_newer then
  return answer(0, 0, stored)
end

local function score(ages, i)
  local age = 0
  for _, byte in ipairs({string.byte(ages, 8 * i - 7, 8 * i)}) do
    age = age * 256 + byte
  end
  return now - age
end
local function add(key, members, ages, newest)
  for i = 1, #members / 14 do
    local at = score(ages, i)
    if at >= now - window and at > newest then
      redis.call('ZADD', key, string.format('%.0f', at), string.sub(members, 14 * i - 13, 14 * i))
    end
  end
  redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('(%.0f', now - window))
  redis.call('PEXPIRE', key, math.floor(window / 1000) + 1000)
end

local newest = -1
if policy == 'consecutive' then
  newest = tonumber(redis.call('ZSCORE', KEYS[4], 'last') or -1)
elseif policy == 'rate' then
  add(KEYS[4], ARGV[6], ARGV[7], -1)
end
add(KEYS[3], ARGV[4], ARGV[5], newest)

local quorum = tonumber(ARGV[13])
local function origins(latest)
  local seen, count = {}, 0
  for _, member in ipairs(redis.call('ZRANGE', KEYS[3], '-inf', latest, 'BYSCORE')) do
    local origin = string.sub(member, 1, 8)
    if not seen[origin] then
      seen[origin], count = true, count + 1
    end
  end
  return count
end
local function is_too_much(latest)
  local failed = redis.call('ZCOUNT', KEYS[3], '-inf', latest)
  if policy == 'rate' then
    local calls = failed + redis.call('ZCARD', KEYS[4])
    if calls < tonumber(ARGV[12]) or failed / calls < tonumber(ARGV[11]) then
      return false
    end
  elseif failed < tonumber(ARGV[10]) then
    return false
  end
  return #ARGV[4] > 0 and (quorum == 1 or origins(latest) >= quorum)
end

local cleared, must_fall = 0, false
if policy == 'consecutive' then
  for i = 1, #ARGV[6] / 14 do
    local at = score(ARGV[7], i)
    must_fall = is_too_much(string.format('%.0f', at))
    if must_fall then
      break
    end
    cleared = cleared + redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', at))
    newest = math.max(newest, at)
  end
  if #ARGV[6] > 0 and not must_fall then
    redis.call('ZADD', KEYS[4], string.format('%.0f', newest), 'last')
    redis.call('PEXPIRE', KEYS[4], math.floor(window / 1000) + 1000)
  end
end

local failures = redis.call('ZCARD', KEYS[3])
if must_fall or is_too_much('+inf') then
  local next_version = string.format('%.0f', math.max(version + 1, math.floor(now / 1000)))
  local value = next_version .. ':' .. ARGV[14] .. ':d:' .. failures .. ':' .. ARGV[15]
  redis.call('HSET', KEYS[1], ARGV[1], value)
  redis.call('DEL', KEYS[3], KEYS[4])
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', 10000, '*',
    'v', own_version, 'k', 'failures', 'o', ARGV[2], 'p', ARGV[1], 'r', value, 'm', #ARGV[4] / 14)
  return answer(2, failures, value)
end

-- While failures are counted, the next success anywhere must be told; else successes cost nothing.
if #ARGV[4] > 0 or cleared > 0 then
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', 10000, '*',
    'v', own_version, 'k', 'counted', 'o', ARGV[2], 'p', ARGV[1], 'n', failures, 'm', #ARGV[4] / 14)
end
return answer(1, failures, stored)
