// The price changes that an update of the catalog refuses. The rates that are compared are those that a call
// is charged by.
import { describe, expect, test } from 'vitest';
import { planUpdate } from '../../../../src/gateway/ai/catalog/catalog-update.ts';
import { type ModelsFileInput, withDefaults } from '../../../../src/gateway/ai/catalog/models-file.ts';

type Model = NonNullable<ModelsFileInput['models']>[number];

const acme = { id: 'acme', kind: 'openai-compatible', base_url: 'https://acme.example/v1' } as const;
const limits = { maximumFactor: 2, modelsWithAnyPrice: [], allowProviders: false, allowOlder: false };

function refusals(before: Partial<Model>, after: Partial<Model>): string[] {
  const file = (members: Partial<Model>): ModelsFileInput => ({
    providers: [acme],
    models: [{ id: 'acme/a', provider: 'acme', rates: null, ...members }],
  });
  const plan = planUpdate(
    { builtIn: withDefaults(file(before)), current: undefined, next: file(after) },
    limits,
  );
  return plan.refusals.map((line) => line.replace(/^acme\/a: (.*) credits, by more .*$/, '$1'));
}

describe('an update of the catalog', () => {
  test.each<[string, Partial<Model>, Partial<Model>, string[]]>([
    [
      'the price of a resolution that had the price of all videos',
      { rates: { video_second: 100 } },
      { rates: { video_second: 100, video_second_720: 1 } },
      ['video_second_720 would change from 100 to 1'],
    ],
    [
      'the price of low resolutions that had the price of the lowest',
      { rates: { video_second_720: 100 } },
      { rates: { video_second: 1, video_second_720: 100 } },
      ['video_second would change from 100 to 1'],
    ],
    [
      'the price of hourly cache writes, which is twice the input by default',
      { rates: { input: 10, output: 1 } },
      { rates: { input: 10, output: 1, cache_write_1h: 50 } },
      ['cache_write_1h would change from 20 to 50'],
    ],
    [
      'the price above a threshold whose tier lacks the kind',
      { rates: { input: 10, output: 10 }, tiers: [{ above_input_tokens: 100, rates: { output: 30 } }] },
      {
        rates: { input: 10, output: 10 },
        tiers: [
          { above_input_tokens: 100, rates: { output: 30 } },
          { above_input_tokens: 200, rates: { input: 10 } },
        ],
      },
      ['output above 200 input tokens would change from 30 to 10'],
    ],
    ['the first price', { rates: null }, { rates: { image: 5 } }, ['rates would change from no price to 5']],
  ])('refuses to change %s', (_name, before, after, expected) => {
    expect(refusals(before, after)).toEqual(expected);
  });

  test('accepts a resolution with a price within the factor', () => {
    const rates = { video_second: 100 };
    expect(refusals({ rates }, { rates: { ...rates, video_second_1080: 150 } })).toEqual([]);
  });
});
