import { expect, describe, test } from 'vitest';
import { createFairLimit } from '../../../../src/gateway/ai/providers/local/renderer/fair-limit.ts';
import { createRenderPool } from '../../../../src/gateway/ai/providers/local/renderer/render-pool.ts';
import { fliteModel } from '../../../../src/gateway/ai/providers/local/flite.ts';
import { shapesModel } from '../../../../src/gateway/ai/providers/local/shapes.ts';
import { storyboardModel } from '../../../../src/gateway/ai/providers/local/storyboard.ts';
import type { ImageCall, SpeechCall, VideoCall } from '../../../../src/gateway/ai/hub/media-model.ts';

const never = new AbortController().signal;
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('turns', () => {
  /** Enters as these owners in this order, and gives slots back one by one; tells in which order they were admitted. */
  async function admitted(
    owners: string[],
    options: { slots: number; slotsPerOwner: number },
  ): Promise<string[]> {
    const turns = createFairLimit(options);
    const order: string[] = [];
    const leaves: (() => void)[] = [];
    for (const owner of owners) {
      void turns.acquire(owner, never).then((leave) => {
        order.push(owner);
        leaves.push(leave);
      });
    }
    await settle();
    while (leaves.length > 0) {
      leaves.shift()?.();
      await settle();
    }
    return order;
  }

  test('go round among owners', async () => {
    expect(await admitted(['a', 'a', 'a', 'a', 'b', 'b', 'c'], { slots: 1, slotsPerOwner: 1 })).toEqual([
      'a',
      'a',
      'b',
      'c',
      'a',
      'b',
      'a',
    ]);
  });

  test('leave a slot that one owner may not have to others', async () => {
    expect(await admitted(['a', 'a', 'a', 'b'], { slots: 2, slotsPerOwner: 1 })).toEqual([
      'a',
      'b',
      'a',
      'a',
    ]);
  });

  test('give one owner no more slots than its share', async () => {
    const turns = createFairLimit({ slots: 4, slotsPerOwner: 3 });
    await Promise.all([1, 2, 3].map(() => turns.acquire('a', never)));
    void turns.acquire('a', never);
    await settle();
    expect(turns.countWaiting('a')).toBe(1);
    await turns.acquire('b', never);
  });

  test('forget an entry that is aborted, and count a slot given back twice once', async () => {
    const turns = createFairLimit({ slots: 1, slotsPerOwner: 1 });
    const leave = await turns.acquire('a', never);
    const gone = new AbortController();
    const waiting = turns.acquire('b', gone.signal);
    gone.abort(new Error('gone'));
    await expect(waiting).rejects.toThrow('gone');
    expect(turns.countWaiting('b')).toBe(0);
    leave();
    leave();
    await turns.acquire('c', never);
    void turns.acquire('d', never);
    await settle();
    expect(turns.countWaiting('d')).toBe(1);
    await expect(turns.acquire('e', AbortSignal.abort(new Error('late')))).rejects.toThrow('late');
  });
});

describe('a renderPool', { timeout: 60_000 }, () => {
  const dot = { kind: 'shapes', prompt: 'dot', size: { width: 64, height: 64 }, seed: '0' } as const;
  const large = {
    kind: 'shapes',
    prompt: '24 stars 24 hearts',
    size: { width: 2048, height: 2048 },
    seed: '0',
  } as const;

  test('makes the work of another owner while one owner has much', async () => {
    const renderPool = createRenderPool();
    const gone = new AbortController();
    const many = Array.from({ length: 50 }, () =>
      renderPool.render(large, { owner: 'user a', signal: gone.signal, reportProgress: () => {} }),
    );
    const ends = many.map((work) =>
      work.then(
        () => true,
        () => false,
      ),
    );
    expect(renderPool.countWaiting('user a')).toBe(49);
    expect(
      await renderPool.render(dot, { owner: 'user b', signal: never, reportProgress: () => {} }),
    ).toMatchObject({
      width: 64,
    });
    expect(renderPool.countWaiting('user a')).toBeGreaterThan(20);
    gone.abort(new Error('gone'));
    await Promise.all(ends);
  });

  test('ends work that outlives its deadline', async () => {
    const renderPool = createRenderPool({ deadlinesMs: { shapes: 1 } });
    await expect(
      renderPool.render(large, { owner: 'user a', signal: never, reportProgress: () => {} }),
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
  const image = (more: Partial<ImageCall>): ImageCall => ({ ...visual, count: 1, ...more });
  const video = (more: Partial<VideoCall>): VideoCall => ({
    ...visual,
    durationSeconds: undefined,
    framesPerSecond: undefined,
    ...more,
  });

  test.each<[string, Partial<ImageCall>]>([
    ['a long prompt', { prompt: 'dot '.repeat(1_001) }],
    ['101 things', { prompt: '24 stars 24 hearts 24 dots 24 moons 5 boats' }],
    ['24 waves on four million pixels', { prompt: '24 waves', size: { width: 2048, height: 2048 } }],
  ])('refuse a picture of %s', (_name, call) => {
    expect(() => shapesModel({ renderPool }).check(image(call))).toThrow(
      expect.objectContaining({ status: 422, param: 'prompt' }),
    );
  });

  test.each([
    'dot '.repeat(1_001),
    '24 stars. 24 hearts. 24 dots. 24 moons. 5 boats.',
    '24 waves. 24 mountains. 24 hills. 24 lakes.',
  ])('refuse a film of %j', (prompt) => {
    expect(() =>
      storyboardModel({ renderPool }).check(
        video({ prompt, size: { width: 1280, height: 1280 }, durationSeconds: 1 }),
      ),
    ).toThrow(expect.objectContaining({ status: 422, param: 'prompt' }));
  });

  test('refuse a film of too many pixels', () => {
    const { check } = storyboardModel({ renderPool });
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

  const speech = (more: Partial<SpeechCall>): SpeechCall => ({
    text: 'x',
    voice: undefined,
    format: undefined,
    speed: undefined,
    language: undefined,
    instructions: undefined,
    owner: 'user a',
    signal: never,
    ...more,
  });

  test('take less text at a lower speed', async () => {
    const text = 'word '.repeat(300);
    await expect(fliteModel({ renderPool }).generate(speech({ text, speed: 0.25 }))).rejects.toMatchObject({
      status: 422,
      param: 'text',
      message: expect.stringContaining('1250 characters at most at this speed'),
    });
  });

  test('refuse more speech of a user who has eight texts waiting', async () => {
    const busy = { ...renderPool, countWaiting: (owner: string) => (owner === 'user a' ? 8 : 0) };
    await expect(fliteModel({ renderPool: busy }).generate(speech({}))).rejects.toMatchObject({
      status: 429,
      code: 'rate_limited',
      headers: { 'retry-after': '5' },
    });
  });
});
