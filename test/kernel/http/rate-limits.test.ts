// Token buckets, caps by address, and whose word about a client's address is believed.
import { describe, expect, test } from 'vitest';
import {
  createAddressCap,
  createQuota,
  rateHeaders,
  type Drawn,
} from '../../../src/kernel/http/rate-limits.ts';
import { trustProxies } from '../../../src/kernel/http/proxies.ts';

function stoppedClock() {
  let nowMs = 1_000_000;
  return { monotonicMs: () => nowMs, pass: (ms: number) => (nowMs += ms) };
}

describe('a quota', () => {
  const policy = { name: 'guest', perMinute: 60 };

  test('grants a minute’s worth at once and then one a second', () => {
    const clock = stoppedClock();
    const quota = createQuota({ clock });
    const draw = () => quota.draw('a', policy) as Drawn;
    expect(Array.from({ length: 100 }, draw).filter(({ granted }) => granted)).toHaveLength(60);
    expect(draw()).toEqual({ granted: false, left: 0, waitSeconds: 1 });
    clock.pass(999);
    expect(draw().granted).toBe(false);
    clock.pass(1);
    expect(draw().granted).toBe(true);
    expect(draw().granted).toBe(false);
    clock.pass(10 * 60_000);
    expect(draw()).toEqual({ granted: true, left: 59, waitSeconds: 1 });
  });

  test('never says to come back before there is a request left', () => {
    for (const perMinute of [1, 7, 10, 59, 600]) {
      const clock = stoppedClock();
      const quota = createQuota({ clock });
      const slow = { name: 'login', perMinute };
      for (let n = 0; n < perMinute; n += 1) void quota.draw('a', slow);
      const { granted, waitSeconds } = quota.draw('a', slow) as Drawn;
      expect(granted).toBe(false);
      clock.pass(waitSeconds * 1_000);
      expect((quota.draw('a', slow) as Drawn).granted).toBe(true);
    }
  });

  test('counts each caller and each policy apart', () => {
    const quota = createQuota({ clock: stoppedClock() });
    const tight = { name: 'login', perMinute: 1 };
    expect((quota.draw('a', tight) as Drawn).granted).toBe(true);
    expect((quota.draw('a', tight) as Drawn).granted).toBe(false);
    expect((quota.draw('b', tight) as Drawn).granted).toBe(true);
    expect((quota.draw('a', policy) as Drawn).granted).toBe(true);
  });

  test('remembers a bounded number of callers and forgets the one that was silent the longest', () => {
    const quota = createQuota({ clock: stoppedClock(), maxBuckets: 2 });
    const tight = { name: 'login', perMinute: 1 };
    const granted = (key: string) => (quota.draw(key, tight) as Drawn).granted;
    expect([granted('a'), granted('b'), granted('a'), granted('c')]).toEqual([true, true, false, true]);
    expect(granted('a')).toBe(false);
    expect(granted('b')).toBe(true);
  });

  test('says so in the headers', () => {
    expect(rateHeaders(policy, { granted: true, left: 59, waitSeconds: 1 })).toEqual({
      'ratelimit-policy': '"guest";q=60;w=60',
      ratelimit: '"guest";r=59;t=1',
    });
  });
});

describe('a cap by address', () => {
  test('counts one network together, gives places back once, and leaves this machine alone', () => {
    const cap = createAddressCap(2);
    const first = cap.enter('2001:db8:1:2::1');
    expect(first).not.toBeNull();
    expect(cap.enter('2001:db8:1:2::2')).not.toBeNull();
    expect(cap.enter('2001:db8:1:2:ffff::3')).toBeNull();
    expect(cap.enter('2001:db8:1:3::1')).not.toBeNull();
    first?.();
    first?.();
    expect(cap.enter('2001:db8:1:2::4')).not.toBeNull();
    expect(cap.enter('2001:db8:1:2::5')).toBeNull();
    for (let n = 0; n < 10; n += 1) expect(cap.enter('::ffff:127.0.0.1')).not.toBeNull();
  });
});

describe('the client behind proxies', () => {
  const proxies = trustProxies(['10.0.0.0/8', '192.0.2.7', 'fd00::/8']);

  test.each([
    ['an untrusted peer is believed nothing', '203.0.113.5', '198.51.100.1', '203.0.113.5'],
    ['a trusted one is, as far as it goes', '10.1.2.3', '198.51.100.1', '198.51.100.1'],
    [
      'the rightmost that is not a proxy counts',
      '10.1.2.3',
      '1.1.1.1, 198.51.100.1, 10.9.9.9',
      '198.51.100.1',
    ],
    ['all of them proxies: the first', '10.1.2.3', '10.0.0.1, 10.0.0.2', '10.0.0.1'],
    ['no header', '10.1.2.3', undefined, '10.1.2.3'],
    ['a word that is no address ends the search', '10.1.2.3', '198.51.100.1, unknown', '10.1.2.3'],
    ['behind a proxy’s own entry too', '10.1.2.3', '1.1.1.1, <script>, 10.5.5.5', '10.5.5.5'],
    ['an entry with a port', '10.1.2.3', '198.51.100.1:4711', '198.51.100.1'],
    ['an IPv6 entry with a port', 'fd00::1', '[2001:DB8::1]:443', '2001:db8::1'],
    ['IPv4 mapped into IPv6', '::ffff:10.1.2.3', '::ffff:198.51.100.1', '198.51.100.1'],
    ['many spaces and empty entries', '10.1.2.3', ' 198.51.100.1 ,', '10.1.2.3'],
    [
      'several headers in one list',
      '192.0.2.7',
      ['1.1.1.1', '198.51.100.1'] as unknown as string,
      '198.51.100.1',
    ],
  ])('%s', (_what, peer, forwarded, client) => {
    expect(proxies.clientOf(peer, forwarded)).toBe(client);
  });

  test('without configured proxies nobody is believed', () => {
    expect(trustProxies([]).clientOf('127.0.0.1', '198.51.100.1')).toBe('127.0.0.1');
  });

  test.each(['proxy.example', '10.0.0.0/33', '10.0.0/8', '::1/129', '10.0.0.1/8/8', '10.0.0.1/x', ''])(
    '"%s" is refused at start',
    (given) => {
      expect(() => trustProxies([given])).toThrow(/neither an address nor a network/);
    },
  );
});
