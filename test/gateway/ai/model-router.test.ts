// The order in which a call tries the models of its chain.
import { describe, expect, test } from 'vitest';
import type { CatalogModel } from '../../../src/gateway/ai/catalog/catalog.ts';
import { createModelRouter } from '../../../src/gateway/ai/calls/model-router.ts';
import { hashText } from '../../../src/kernel/hash-text.ts';
import { catalogModel } from './catalog-model.ts';

function routerAt(clock = { nowMs: 0 }) {
  return createModelRouter({ clock: { monotonicMs: () => clock.nowMs } });
}

const idsOf = (models: readonly CatalogModel[]) => models.map(({ id }) => id);
const modelOf = (id: string, input: number, output: number, members: Partial<CatalogModel> = {}) =>
  catalogModel({ id, rates: { input, output }, ...members });

describe('the order of a chain', () => {
  test('is the requested model and its fallbacks without route_by', () => {
    const chain = [modelOf('a/x', 9, 9), modelOf('b/x', 1, 1)];
    expect(routerAt().order(chain, undefined)).toBe(chain);
  });

  test('is by the price of three input tokens and one output token', () => {
    // 40, 39, 36 and 0 credits.
    const chain = [
      modelOf('a/x', 10, 10, { route_by: 'price' }),
      modelOf('b/x', 1, 36),
      modelOf('c/x', 9, 9),
      catalogModel({ id: 'd/x', rates: null }),
    ];
    expect(idsOf(routerAt().order(chain, undefined))).toEqual(['d/x', 'c/x', 'b/x', 'a/x']);
  });

  test('keeps the order of models with the same price', () => {
    const chain = [modelOf('a/x', 1, 1, { route_by: 'price' }), modelOf('b/x', 1, 1)];
    expect(idsOf(routerAt().order(chain, undefined))).toEqual(['a/x', 'b/x']);
  });

  test('shares calls by weight', () => {
    const chain = [modelOf('a/x', 1, 1, { route_by: 'weight', weight: 3 }), modelOf('b/x', 1, 1)];
    const router = routerAt();
    const firstChoices = Array.from({ length: 4_000 }, () => router.order(chain, undefined)[0]?.id);
    expect(firstChoices.filter((id) => id === 'a/x').length / 4_000).toBeCloseTo(0.75, 1);
  });

  test('keeps the calls of a session at one model by weight', () => {
    const chain = [modelOf('a/x', 1, 1, { route_by: 'weight' }), modelOf('b/x', 1, 1)];
    const router = routerAt();
    const firstOf = (session: string) => router.order(chain, () => hashText(session))[0]?.id;
    const sessions = Array.from({ length: 20 }, (_, index) => `session ${index}`);
    expect(sessions.map(firstOf)).toEqual(sessions.map(firstOf));
    expect(new Set(sessions.map(firstOf)).size).toBe(2);
  });
});

describe('the order by latency', () => {
  const slowModel = modelOf('a/x', 1, 1, { route_by: 'latency' });
  const fastModel = modelOf('b/x', 1, 1);
  const chain = [slowModel, fastModel];

  test('measures each model once and then prefers the fastest', () => {
    const router = routerAt();
    expect(idsOf(router.order(chain, undefined))).toEqual(['a/x', 'b/x']);
    router.record(slowModel, 900);
    expect(idsOf(router.order(chain, undefined))).toEqual(['b/x', 'a/x']);
    router.record(fastModel, 300);
    for (let call = 0; call < 3; call += 1)
      expect(idsOf(router.order(chain, undefined))).toEqual(['b/x', 'a/x']);
  });

  test('measures a slower model again with one call a minute', () => {
    const clock = { nowMs: 0 };
    const router = routerAt(clock);
    router.record(slowModel, 900);
    router.record(fastModel, 300);
    clock.nowMs = 59_000;
    // Otherwise the fast model, too, would have to be measured again after a minute.
    router.record(fastModel, 300);
    expect(router.order(chain, undefined)[0]).toBe(fastModel);
    clock.nowMs = 60_000;
    expect(router.order(chain, undefined)[0]).toBe(slowModel);
    expect(router.order(chain, undefined)[0]).toBe(fastModel);
  });

  test('keeps the latencies of a chain when a new model fills the table', () => {
    const clock = { nowMs: 0 };
    const router = routerAt(clock);
    for (let index = 0; index < 998; index += 1) router.record(modelOf(`old/${index}`, 1, 1), 1);
    clock.nowMs = 1;
    router.record(slowModel, 900);
    router.record(fastModel, 300);
    const newModel = modelOf('c/x', 1, 1);
    // The new model is measured first, and comes last until it has answered.
    expect(idsOf(router.order([...chain, newModel], undefined))).toEqual(['c/x', 'b/x', 'a/x']);
    expect(idsOf(router.order([...chain, newModel], undefined))).toEqual(['b/x', 'a/x', 'c/x']);
  });

  test('prefers another model after a failure', () => {
    const router = routerAt();
    router.record(slowModel, 900);
    router.record(fastModel, 300);
    router.record(fastModel, undefined);
    expect(router.order(chain, undefined)[0]).toBe(slowModel);
  });

  test('returns to a model when it answers after failures', () => {
    const router = routerAt();
    router.record(slowModel, 900);
    for (let failure = 0; failure < 10; failure += 1) router.record(fastModel, undefined);
    expect(router.order(chain, undefined)[0]).toBe(slowModel);
    router.record(fastModel, 300);
    expect(router.order(chain, undefined)[0]).toBe(fastModel);
  });
});
