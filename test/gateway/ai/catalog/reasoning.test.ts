// The reasoning efforts of models, and the idle timeouts of models that reason in silence.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  checkEffort,
  effortOrDefault,
  isAboveDefaultEffort,
} from '../../../../src/gateway/ai/catalog/reasoning.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { partsOf, startAi, type World } from '../world.ts';

const reasoning = {
  efforts: [
    { id: 'low', name: 'Low' },
    { id: 'medium', name: 'Medium' },
    { id: 'high', name: 'High' },
  ],
  default_effort: 'medium',
};
const thinker = { id: 'acme/thinker', reasoning };
const plainModel = { id: 'acme/plain' };

describe('reasoning efforts', () => {
  test('accept an effort of the model, or none', () => {
    expect(checkEffort(thinker, 'high')).toBe('high');
    expect(checkEffort(thinker, null)).toBeUndefined();
  });

  test("default to the model's default effort", () => {
    expect(effortOrDefault(thinker, undefined)).toBe('medium');
    expect(effortOrDefault(plainModel, undefined)).toBeUndefined();
  });

  test('refuse an effort that the model lacks', () => {
    expect(() => checkEffort(thinker, 'max')).toThrow('allowed are low, medium, high');
    expect(() => checkEffort(thinker, '')).toThrow('allowed are');
    expect(() => checkEffort(plainModel, 'low')).toThrow('has no reasoning efforts');
  });

  test('recognize an effort above the default', () => {
    expect(
      [undefined, 'low', 'medium', 'high'].map((effort) => isAboveDefaultEffort(thinker, effort)),
    ).toEqual([false, false, false, true]);
    expect(isAboveDefaultEffort(plainModel, undefined)).toBe(false);
  });
});

describe('a model that is silent while it reasons', () => {
  let provider: ScriptedProvider;
  let world: World;
  beforeAll(async () => {
    provider = await startProvider();
    const script = 'ok?chunks=2&gap=400';
    const models = [
      { id: 'acme/thinker', provider: 'acme', upstream_model: script, rates: null, reasoning },
      { id: 'acme/patient', provider: 'acme', upstream_model: script, rates: null, idle_timeout_s: 5 },
    ];
    world = await startAi({
      models: provider.modelsFile({ plain: script }, { models }),
      timeouts: { idleMs: 100, answerMs: 5_000 },
    });
  });
  afterAll(async () => {
    await world.close();
    await provider.close();
  });
  const finishReasonOf = async (body: object) => {
    const { parts } = await partsOf(
      await world.post('/v1/ai/stream', {
        prompt: [{ role: 'user', content: [{ type: 'text', text: 'x' }] }],
        ...body,
      }),
    );
    return (parts.at(-1) as { finishReason: { unified: string } }).finishReason.unified;
  };

  test.each(['acme/plain', 'acme/thinker'])('times out at the usual idle timeout: %s', async (model) => {
    expect(await finishReasonOf({ model })).toBe('error');
  });

  test.each([
    ['a raised effort', { model: 'acme/thinker', reasoning_effort: 'high' }],
    ['a longer idle timeout in the catalog', { model: 'acme/patient' }],
  ])('has more time with %s', async (_reason, body) => {
    expect(await finishReasonOf(body)).toBe('stop');
  });
});
