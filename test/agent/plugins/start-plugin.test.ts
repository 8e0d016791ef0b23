// A plugin in its author's tests: `startPlugin` calls its actions without an agent, and `definePlugin` infers
// the types of inputs from their schemas.
import { describe, expect, expectTypeOf, test } from 'vitest';
import { refusal } from '../../../src/agent/refusal.ts';
import { definePlugin, startPlugin } from '../../../src/index.ts';

const weather = definePlugin({
  name: 'weather',
  title: 'Weather',
  description: 'Reports the weather.',
  settings: { type: 'object', properties: { unit: { enum: ['c', 'f'] } }, additionalProperties: false },
  actions: {
    read: {
      description: 'Reads the weather of a city.',
      input: {
        type: 'object',
        properties: {
          city: { type: 'string' },
          days: { type: 'integer' },
          unit: { enum: ['c', 'f'] },
          tags: { type: 'array', items: { type: 'string' } },
        },
        required: ['city'],
        additionalProperties: false,
      },
      async run({ city, days = 1, unit, tags = [] }, { settings, showOutput, refuse }) {
        if (city === 'Atlantis') refuse('There is no such city.');
        showOutput(`asks for ${city}`);
        expectTypeOf(days).toEqualTypeOf<number>();
        expectTypeOf(unit).toEqualTypeOf<'c' | 'f' | undefined>();
        expectTypeOf(tags).toEqualTypeOf<string[]>();
        return { city, days, unit: unit ?? settings['unit'], tags };
      },
    },
    fail: {
      description: 'Fails.',
      input: { type: 'object' },
      async run() {
        throw new Error('a secret detail');
      },
    },
  },
});

describe('definePlugin', () => {
  test('gives an action the types of its schema', () => {
    const plugin = definePlugin({
      name: 'typed',
      title: 'Typed',
      description: 'Has one action.',
      actions: {
        read: {
          description: 'Reads a city.',
          input: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
          async run({ city }) {
            expectTypeOf(city).toEqualTypeOf<string>();
            return city;
          },
        },
      },
    });
    expect(Object.keys(plugin.actions)).toEqual(['read']);
  });
});

describe('startPlugin', () => {
  test('calls an action with the settings of the plugin', async () => {
    const plugin = await startPlugin(weather, { settings: { unit: 'f' } });
    expect(await plugin.call('read', { city: 'Rome' })).toEqual({
      city: 'Rome',
      days: 1,
      unit: 'f',
      tags: [],
    });
    expect(plugin.outputs).toEqual(['asks for Rome']);
  });

  test('throws the text that a model gets', async () => {
    const plugin = await startPlugin(weather);
    await expect(plugin.call('read', { town: 'Rome' })).rejects.toThrow(
      'The input does not match the schema of the action',
    );
    await expect(plugin.call('read', { city: 'Atlantis' })).rejects.toThrow('There is no such city.');
    await expect(plugin.call('fail')).rejects.toThrow('The action failed.');
    await expect(plugin.call('write')).rejects.toThrow('The plugin "weather" has no action "write".');
  });

  test('keeps the exception of a failed action as its cause', async () => {
    const plugin = await startPlugin(weather);
    await expect(plugin.call('fail')).rejects.toMatchObject({ cause: { message: 'a secret detail' } });
  });

  test('throws the reason when the start is refused', async () => {
    const refusingPlugin = { ...weather, start: () => Promise.reject(refusal('There is no compiler.')) };
    await expect(startPlugin(refusingPlugin)).rejects.toThrow('is not available: There is no compiler.');
  });

  test('throws the reason when the plugin cannot start', async () => {
    const brokenPlugin = { ...weather, start: () => Promise.reject(new Error('no key')) };
    await expect(startPlugin(brokenPlugin)).rejects.toThrow('The plugin "weather" is not available: ');
    await expect(startPlugin(weather, { settings: { unit: 'k' } })).rejects.toThrow(
      'The settings of the plugin "weather" are invalid',
    );
  });

  test('runs the stop of the plugin', async () => {
    let hasStopped = false;
    const plugin = await startPlugin({
      ...weather,
      stop: () => {
        hasStopped = true;
      },
    });
    await plugin.stop();
    expect(hasStopped).toBe(true);
  });
});
