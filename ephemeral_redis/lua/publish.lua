--[[ Counts a batch of signals and appends it to the streams, once, however often it is sent.

KEYS  1 last batch of the sender   2 marks   3 stream of signals   4 stream of item signals
      5 names of one segment   6 names of two   7… one sorted set per scope
ARGV  1 serial of the batch, growing by one per sender
      2 retention, ms   3 capacity, signals per stream and per scope   4 version of the entries
      5 origin, 8 bytes
      6 members, 14 bytes each: those of stream 3 first, then of stream 4, then those that are only counted
      7 ages in ms, 4 bytes each, in the same order
      8 for each of KEYS 7…: first and last member of its range, counted from 1, 2 bytes each
      9, 10 position and body of the entry for stream 3; empty body: none   11 its signals
      12 1 if it is the sender's first one there, else 0
      13, 14, 15, 16 the same for stream 4
      17 how many of the names after it are of one segment   18… names to keep known, then those of two segments
      last: until when it may run, us of this server
Reply {1 if applied now, 0 if it had been before; server time, us}, or the error "LATE <server time, us>"

Big-endian throughout. A score is when the signal was raised, in us of this server: its time less the signal's age. ]]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[#ARGV]) then
  return redis.error_reply(string.format('LATE %.0f', now))
end
if tonumber(redis.call('GET', KEYS[1]) or 0) >= tonumber(ARGV[1]) then
  return {0, string.format('%.0f', now)}
end

local retention, capacity = tonumber(ARGV[2]), tonumber(ARGV[3])
local lifetime = math.floor(retention * 1.1) + 1
local members, ages, ranges = ARGV[6], ARGV[7], ARGV[8]

-- score, member, score, member …: each scope is a range of this one table, so each ZADD is one unpack of it.
local flat, scores = {}, {}
for i = 1, #ages / 4 do
  local age = string.sub(ages, 4 * i - 3, 4 * i)
  local score = scores[age]
  if not score then
    local a, b, c, d = string.byte(age, 1, 4)
    -- Never tostring: it writes 17e14 with an exponent and 14 digits.
    score = string.format('%.0f', now - (((a * 256 + b) * 256 + c) * 256 + d) * 1000)
    scores[age] = score
  end
  flat[2 * i - 1] = score
  flat[2 * i] = string.sub(members, 14 * i - 13, 14 * i)
end

local oldest = string.format('%.0f', now - retention * 1000)
for k = 7, #KEYS do
  local a, b, c, d = string.byte(ranges, 4 * k - 27, 4 * k - 24)
  local first, last = a * 256 + b, c * 256 + d
  redis.call('ZADD', KEYS[k], unpack(flat, 2 * first - 1, 2 * last))
  redis.call('ZREMRANGEBYSCORE', KEYS[k], '-inf', '(' .. oldest)
  if redis.call('ZCARD', KEYS[k]) > capacity then
    redis.call('ZREMRANGEBYRANK', KEYS[k], 0, -capacity - 1)
  end
  redis.call('PEXPIRE', KEYS[k], lifetime)
end

-- A stream's length counts entries, and an entry holds up to 256 signals: every eighth of the capacity the id is noted,
-- and the stream is cut at the note that lies one capacity back.
local function append(stream, name, position, body, count, first, from)
  if body == '' then
    return
  end
  local minimum = string.format('%.0f-0', (now / 1000 - retention))
  local id = redis.call('XADD', stream, 'MINID', '~', minimum, '*', 'v', ARGV[4], 'o', ARGV[5], 'q', position,
    'n', count, 'f', first, 'a', string.sub(ages, 4 * from + 1, 4 * (from + count)), 'b', body)
  local total = redis.call('HINCRBY', KEYS[2], name, count)
  local step = math.ceil(capacity / 8)
  local before, part = math.floor((total - count) / step), math.floor(total / step)
  if part > before then
    for i = math.max(before + 1, part - 15), part do
      redis.call('HSET', KEYS[2], name .. i % 16, id)
    end
    local mark = redis.call('HGET', KEYS[2], name .. (part - 8) % 16)
    if mark then
      redis.call('XTRIM', stream, 'MINID', '~', mark)
    end
  end
  redis.call('PEXPIRE', stream, lifetime)
end
local signals, items = tonumber(ARGV[11]), tonumber(ARGV[15])
append(KEYS[3], 's', ARGV[9], ARGV[10], signals, ARGV[12], 0)
append(KEYS[4], 'i', ARGV[13], ARGV[14], items, ARGV[16], signals)

local function remember(key, first, last)
  if last < first then
    return
  end
  for i = first, last do
    redis.call('ZADD', key, string.format('%.0f', now / 1000), ARGV[i])
  end
  redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('(%.0f', now / 1000 - lifetime))
  redis.call('ZREMRANGEBYRANK', key, 0, -10001)
  redis.call('PEXPIRE', key, lifetime)
end
local shallow = tonumber(ARGV[17])
remember(KEYS[5], 18, 17 + shallow)
remember(KEYS[6], 18 + shallow, #ARGV - 1)

-- Last, so that a script that fails midway is run again. Kept for an hour at least: a retry may come that late.
redis.call('SET', KEYS[1], ARGV[1], 'PX', math.max(lifetime, 3600000))
return {1, string.format('%.0f', now)}
