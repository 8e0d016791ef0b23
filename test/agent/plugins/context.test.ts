// The plugin `context`: pages of an earlier output.
import { expect, test } from 'vitest';
import { callAction, context, createRegistry } from '../../../src/agent/plugins/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLog } from '../../support/databases.ts';

const output = 'ab\u{1f600}cd';
const registry = createRegistry([context({ readOutput: async () => output })]);

async function readPages(length: number): Promise<string[]> {
  const tool = registry.tool('context_read');
  if (tool === undefined) throw new Error('There is no context_read.');
  const pages: string[] = [];
  for (let offset: number | null = 0; offset !== null;) {
    const outcome = await callAction({
      tool,
      input: { seq: 1, offset, length },
      workspace: '/',
      sessionId: 's',
      signal: new AbortController().signal,
      timeoutMs: 5_000,
      clock: systemClock,
      log: silentLog,
    });
    if (!outcome.ok) throw new Error(outcome.message);
    const page = outcome.output as { text: string; nextOffset: number | null };
    pages.push(page.text);
    offset = page.nextOffset;
  }
  return pages;
}

test.each([
  [1, ['a', 'b', '\u{1f600}', 'c', 'd']],
  [3, ['ab', '\u{1f600}c', 'd']],
  [4, ['ab\u{1f600}', 'cd']],
])('pages of %i characters split no character', async (length, pages) => {
  expect(await readPages(length)).toEqual(pages);
});
