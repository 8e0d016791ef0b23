// The record of a compaction.
import { expect, test } from 'vitest';
import { compact } from '../../../src/agent/sessions/model-loop/compaction.ts';

test('a compaction whose record fails is not recorded as failed', async () => {
  const recordedTypes: string[] = [];
  const compaction = compact({
    writer: {
      record: async (events) => {
        recordedTypes.push(...events.map(({ type }) => type));
        if (events.some(({ type }) => type === 'compaction.ended'))
          throw new Error('The database is unavailable.');
        return 1;
      },
    },
    // Nothing to summarize needs no model.
    model: {} as never,
    plan: { upToSeq: 1, cut: null, transcript: [] },
    earlierSummary: 'They read a book.',
    contextTokens: null,
    reason: 'asked',
    signal: new AbortController().signal,
    recover: () => Promise.reject(new Error('No call fails here.')),
  });
  await expect(compaction).rejects.toThrow('The database is unavailable.');
  expect(recordedTypes).toEqual(['compaction.started', 'compaction.ended']);
});
