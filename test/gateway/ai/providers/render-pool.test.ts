// Limits of local rendering: the turns of users, the number of threads, and the size of a task.
import { describe, expect, test } from 'vitest';
import { createFairLimit } from '../../../../src/gateway/ai/providers/local/renderer/fair-limit.ts';
import {
  createRenderPool,
  type RenderPool,
} from '../../../../src/gateway/ai/providers/local/renderer/render-pool.ts';
import { fliteModel } from '../../../../src/gateway/ai/providers/local/flite.ts';
import { shapesModel } from '../../../../src/gateway/ai/providers/local/shapes.ts';
import { storyboardModel } from '../../../../src/gateway/ai/providers/local/storyboard.ts';
import type { ImageCall, SpeechCall, VideoCall } from '../../../../src/gateway/ai/hub/media-model.ts';

const openSignal = new AbortController().signal;
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('createFairLimit', () => {
  /**
   * Acquires slots for the owners in this order, releases them one by one, and returns the order of
   * admission.
   */
  async function readAdmissionOrder(
    owners: string[],
    options: { slots: number; slotsPerOwner: number },
  ): Promise<string[]> {
    const limit = createFairLimit(options);
    const order: string[] = [];
    const releases: (() => void)[] = [];
    for (const owner of owners) {
      void limit.acquire(owner, openSignal).then((release) => {
        order.push(owner);
        releases.push(release);
      });
    }
    await settle();
    while (releases.length > 0) {
      releases.shift()?.();
      await settle();
    }
    return order;
  }

  test('admits owners in turn', async () => {
    expect(
      await readAdmissionOrder(['a', 'a', 'a', 'a', 'b', 'b', 'c'], { slots: 1, slotsPerOwner: 1 }),
    ).toEqual(['a', 'a', 'b', 'c', 'a', 'b', 'a']);
  });

  test('keeps a slot free for other owners', async () => {
    expect(await readAdmissionOrder(['a', 'a', 'a', 'b'], { slots: 2, slotsPerOwner: 1 })).toEqual([
      'a',
      'b',
      'a',
      'a',
    ]);
  });

  test('limits the slots of one owner', async () => {
    const limit = createFairLimit({ slots: 4, slotsPerOwner: 3 });
    await Promise.all([1, 2, 3].map(() => limit.acquire('a', openSignal)));
    void limit.acquire('a', openSignal);
    await settle();
    expect(limit.countWaiting('a')).toBe(1);
    await limit.acquire('b', openSignal);
  });

  test('removes an aborted task from the queue', async () => {
    const limit = createFairLimit({ slots: 1, slotsPerOwner: 1 });
    await limit.acquire('a', openSignal);
    const abort = new AbortController();
    const acquisition = limit.acquire('b', abort.signal);
    abort.abort(new Error('gone'));
    await expect(acquisition).rejects.toThrow('gone');
    expect(limit.countWaiting('b')).toBe(0);
  });

  test('frees a slot once when it is released twice', async () => {
    const limit = createFairLimit({ slots: 1, slotsPerOwner: 1 });
    const release = await limit.acquire('a', openSignal);
    release();
    release();
    await limit.acquire('b', openSignal);
    void limit.acquire('c', openSignal);
    await settle();
    expect(limit.countWaiting('c')).toBe(1);
  });

  test('rejects a task whose signal is already aborted', async () => {
    const limit = createFairLimit({ slots: 1, slotsPerOwner: 1 });
    await expect(limit.acquire('a', AbortSignal.abort(new Error('late')))).rejects.toThrow('late');
  });
});

describe('createRenderPool', { timeout: 60_000 }, () => {
  const dot = { kind: 'shapes', prompt: 'dot', size: { width: 64, height: 64 }, seed: '0' } as const;
  const largeTask = {
    kind: 'shapes',
    prompt: '24 stars 24 hearts',
    size: { width: 2048, height: 2048 },
    seed: '0',
  } as const;

  test('renders for another owner while one owner has many tasks', async () => {
    const renderPool = createRenderPool();
    const abort = new AbortController();
    const tasks = Array.from({ length: 50 }, () =>
      renderPool.render(largeTask, { owner: 'user a', signal: abort.signal, reportProgress: () => {} }),
    );
    const results = tasks.map((work) =>
      work.then(
        () => true,
        () => false,
      ),
    );
    // Of the two threads, one user gets only one.
    expect(renderPool.countWaiting('user a')).toBe(49);
    expect(
      await renderPool.render(dot, { owner: 'user b', signal: openSignal, reportProgress: () => {} }),
    ).toMatchObject({
      width: 64,
    });
    expect(renderPool.countWaiting('user a')).toBeGreaterThan(20);
    abort.abort(new Error('gone'));
    await Promise.all(results);
  });

  test('stops a task past its deadline', async () => {
    const renderPool = createRenderPool({ deadlinesMs: { shapes: 1 } });
    await expect(
      renderPool.render(largeTask, { owner: 'user a', signal: openSignal, reportProgress: () => {} }),
    ).rejects.toMatchObject({ status: 422, code: 'unsupported_by_model' });
    expect(renderPool.countWaiting('user a')).toBe(0);
  });
});

describe('the local media models', () => {
  const renderPool = { render: () => new Promise<never>(() => {}), countWaiting: () => 0 };
  const visual = {
    prompt: 'dot',
    size: undefined,
    aspectRatio: undefined,
    seed: undefined,
    images: [],
    options: {},
  };
  const image = (overrides: Partial<ImageCall>): ImageCall => ({ ...visual, count: 1, ...overrides });
  const video = (overrides: Partial<VideoCall>): VideoCall => ({
    ...visual,
    durationSeconds: undefined,
    framesPerSecond: undefined,
    ...overrides,
  });

  test.each<[string, Partial<ImageCall>]>([
    ['a long prompt', { prompt: 'dot '.repeat(1_001) }],
    ['101 things', { prompt: '24 stars 24 hearts 24 dots 24 moons 5 boats' }],
    ['24 waves on four million pixels', { prompt: '24 waves', size: { width: 2048, height: 2048 } }],
  ])('refuse an image of %s', (_name, call) => {
    expect(() => shapesModel({ renderPool }).check(image(call))).toThrow(
      expect.objectContaining({ status: 422, param: 'prompt' }),
    );
  });

  test.each([
    'dot '.repeat(1_001),
    '24 stars. 24 hearts. 24 dots. 24 moons. 5 boats.',
    '24 waves. 24 mountains. 24 hills. 24 lakes.',
  ])('refuse a video of %j', (prompt) => {
    expect(() =>
      storyboardModel({ renderPool }).check(
        video({ prompt, size: { width: 1280, height: 1280 }, durationSeconds: 1 }),
      ),
    ).toThrow(expect.objectContaining({ status: 422, param: 'prompt' }));
  });

  test('keep a video of an extreme aspect ratio within the largest side', async () => {
    const sizes: unknown[] = [];
    const recordingPool: RenderPool = {
      ...renderPool,
      render(task) {
        sizes.push(task.kind === 'storyboard' ? task.size : undefined);
        return new Promise<never>(() => {});
      },
    };
    const call = video({ aspectRatio: { width: 16, height: 1 } });
    void storyboardModel({ renderPool: recordingPool }).generate(call, {
      owner: 'user a',
      signal: openSignal,
      reportProgress: () => {},
    });
    // At 16:1, the area of 640x360 pixels would be 1920 wide and 120 high.
    expect(sizes).toEqual([{ width: 1280, height: 120 }]);
  });

  test('refuse a video of too many pixels', () => {
    const { check } = storyboardModel({ renderPool });
    // At 30 frames a second, 150 million pixels are 5.4 seconds of this size.
    const size = { width: 1280, height: 720 };
    expect(() => check(video({ size, durationSeconds: 20, framesPerSecond: 30 }))).toThrow(
      expect.objectContaining({
        status: 422,
        param: 'duration_seconds',
        message: expect.stringContaining('5 seconds at most at 1280x720'),
      }),
    );
    expect(() => check(video({ size, durationSeconds: 5, framesPerSecond: 30 }))).not.toThrow();
    expect(() => check(video({ durationSeconds: 20, framesPerSecond: 30 }))).not.toThrow();
  });

  const speech = (overrides: Partial<SpeechCall>): SpeechCall => ({
    text: 'x',
    voice: undefined,
    format: undefined,
    speed: undefined,
    language: undefined,
    instructions: undefined,
    owner: 'user a',
    signal: openSignal,
    ...overrides,
  });

  test('accept less text at a lower speed', async () => {
    // 1,499 characters; the limit of 5,000 at the usual speed is 1,250 at a quarter of it.
    const text = 'word '.repeat(300);
    const failingPool = { ...renderPool, render: () => Promise.reject(new Error('accepted')) };
    await expect(fliteModel({ renderPool: failingPool }).generate(speech({ text }))).rejects.toThrow(
      'accepted',
    );
    await expect(fliteModel({ renderPool }).generate(speech({ text, speed: 0.25 }))).rejects.toMatchObject({
      status: 422,
      param: 'text',
      message: expect.stringContaining('at most 1250 characters at this speed'),
    });
  });

  test('refuse a ninth waiting text among concurrent calls', async () => {
    const finish = Promise.withResolvers<never>();
    let waiting = 0;
    const countingPool = {
      render() {
        waiting += 1;
        return finish.promise;
      },
      countWaiting: () => waiting,
    };
    const model = fliteModel({ renderPool: countingPool });
    const results = Promise.allSettled(Array.from({ length: 12 }, () => model.generate(speech({}))));
    await expect.poll(() => waiting).toBeGreaterThanOrEqual(8);
    finish.reject(new Error('accepted'));
    const refusals = (await results).filter(
      (result) => result.status === 'rejected' && (result.reason as { status?: number }).status === 429,
    );
    expect([waiting, refusals.length]).toEqual([8, 4]);
  });

  test('refuse a ninth waiting text of one user', async () => {
    const busyPool = { ...renderPool, countWaiting: (owner: string) => (owner === 'user a' ? 8 : 0) };
    await expect(fliteModel({ renderPool: busyPool }).generate(speech({}))).rejects.toMatchObject({
      status: 429,
      code: 'rate_limited',
      headers: { 'retry-after': '5' },
    });
  });
});
