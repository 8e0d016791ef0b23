import { describe, expect, it } from 'vitest';
import {
  createBatcher,
  createSerializer,
  createSharedReads,
  pause,
  retry,
  settlesWithin,
  TimeoutError,
  withTimeout,
} from '../../src/kernel/async.ts';

const pendingForever = new Promise<never>(() => undefined);
const tooLate = () => new Error('too late');

describe('withTimeout', () => {
  it('returns the result of work that ends in time', async () => {
    expect(await withTimeout(async () => 'done', { ms: 10_000, error: tooLate })).toBe('done');
  });

  it('rejects with a TimeoutError after the time', async () => {
    await expect(withTimeout(() => pendingForever, { ms: 1 })).rejects.toThrow(TimeoutError);
  });

  it('rejects with the error of the options after the time', async () => {
    await expect(withTimeout(() => pendingForever, { ms: 1, error: tooLate })).rejects.toThrow('too late');
  });

  it('aborts the signal of the work with the same error', async () => {
    let reason: unknown;
    const work = (signal: AbortSignal) =>
      new Promise<never>(() => signal.addEventListener('abort', () => (reason = signal.reason)));
    await expect(withTimeout(work, { ms: 1, error: tooLate })).rejects.toThrow('too late');
    expect(reason).toEqual(tooLate());
  });

  it('rejects with the reason of an outside abort', async () => {
    const caller = new AbortController();
    const result = withTimeout(() => pendingForever, { ms: 10_000, error: tooLate, signal: caller.signal });
    caller.abort(new Error('the caller left'));
    await expect(result).rejects.toThrow('the caller left');
  });

  it('drops an error that comes after the timeout', async () => {
    const laterResult = Promise.withResolvers<never>();
    const result = withTimeout(() => laterResult.promise, { ms: 1, error: tooLate });
    await expect(result).rejects.toThrow('too late');
    // An unhandled rejection would fail the test run.
    laterResult.reject(new Error('after the timeout'));
    await pause(1);
  });
});

describe('settlesWithin', () => {
  it('is true for work that fails in time', async () => {
    expect(await settlesWithin(Promise.reject(new Error('failed')), { ms: 10_000 })).toBe(true);
  });

  it('is false after the time', async () => {
    expect(await settlesWithin(pendingForever, { ms: 1 })).toBe(false);
  });

  it('is false after an abort', async () => {
    expect(await settlesWithin(pendingForever, { ms: 10_000, signal: AbortSignal.abort() })).toBe(false);
  });
});

describe('createSerializer', () => {
  it('starts work once the preceding work has ended', async () => {
    const serialize = createSerializer();
    const first = Promise.withResolvers<void>();
    const order: string[] = [];
    const results = [
      serialize(() => first.promise.then(() => order.push('first'))),
      serialize(async () => order.push('second')),
    ];
    await pause(1);
    first.resolve();
    await Promise.all(results);
    expect(order).toEqual(['first', 'second']);
  });

  it('runs work after work that failed', async () => {
    const serialize = createSerializer();
    const failure = serialize(() => Promise.reject(new Error('failed')));
    expect(await serialize(async () => 'done')).toBe('done');
    await expect(failure).rejects.toThrow('failed');
  });
});

describe('retry', () => {
  it('tries again until the work succeeds', async () => {
    let calls = 0;
    const work = async () => {
      calls += 1;
      if (calls < 3) throw new Error('not yet');
      return calls;
    };
    expect(await retry(work, { isRetryable: () => true, delayMs: () => 0 })).toBe(3);
  });

  it('rejects with the first error that is not retryable', async () => {
    let calls = 0;
    const work = async () => {
      calls += 1;
      throw new Error(`attempt ${calls}`);
    };
    const isRetryable = (_error: unknown, attempt: number) => attempt < 2;
    await expect(retry(work, { isRetryable, delayMs: () => 0 })).rejects.toThrow('attempt 2');
  });

  it('ends the wait when the signal is aborted', async () => {
    const caller = new AbortController();
    const work = async () => {
      setImmediate(() => caller.abort());
      throw new Error('away');
    };
    const options = { isRetryable: () => true, delayMs: () => 60_000, signal: caller.signal };
    await expect(retry(work, options)).rejects.toThrow('away');
  });
});

describe('createBatcher', () => {
  const failsWith = (failingItem: number) => async (items: readonly number[]) => {
    if (items.includes(failingItem)) throw new Error(`${failingItem} is bad`);
    return items.map((item) => item * 10);
  };

  it('runs the items of one turn together', async () => {
    const sizes: number[] = [];
    const add = createBatcher(
      async (items: readonly number[]) => {
        sizes.push(items.length);
        return items;
      },
      { maxItems: 2, hadNoEffect: () => true },
    );
    expect(await Promise.all([add(1), add(2), add(3)])).toEqual([1, 2, 3]);
    expect(sizes).toEqual([2, 1]);
  });

  it('puts items with the same key into separate batches', async () => {
    const batches: string[][] = [];
    const add = createBatcher(
      async (items: readonly string[]) => {
        batches.push([...items]);
        return items;
      },
      { maxItems: 10, keyOf: (item) => item, hadNoEffect: () => true },
    );
    await Promise.all([add('a'), add('b'), add('a')]);
    expect(batches).toEqual([['a', 'b'], ['a']]);
  });

  it('runs the items one by one after a failure without effect', async () => {
    const add = createBatcher(failsWith(2), { maxItems: 10, hadNoEffect: () => true });
    const results = await Promise.allSettled([add(1), add(2), add(3)]);
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  });

  it('fails the whole batch when its effect is unknown', async () => {
    const add = createBatcher(failsWith(2), { maxItems: 10, hadNoEffect: () => false });
    const results = await Promise.allSettled([add(1), add(2), add(3)]);
    expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
  });
});

describe('createSharedReads', () => {
  it('reads twice for any number of concurrent callers', async () => {
    const read = createSharedReads<number>();
    let count = 0;
    const next = async () => {
      await new Promise((resolve) => setImmediate(resolve));
      return (count += 1);
    };
    const numbers = await Promise.all(Array.from({ length: 100 }, () => read('a', next)));
    expect(numbers).toEqual([1, ...Array.from({ length: 99 }, () => 2)]);
    expect(await read('a', next)).toBe(3);
  });

  it('keeps keys apart', async () => {
    const read = createSharedReads<string>();
    expect(await Promise.all([read('a', async () => 'a'), read('b', async () => 'b')])).toEqual(['a', 'b']);
  });

  it('reads again after a failure', async () => {
    const read = createSharedReads<number>();
    const failingRead = read('a', () => Promise.reject(new Error('away')));
    const secondRead = read('a', async () => 1);
    await expect(failingRead).rejects.toThrow('away');
    expect(await secondRead).toBe(1);
    expect(await read('a', async () => 2)).toBe(2);
  });
});
