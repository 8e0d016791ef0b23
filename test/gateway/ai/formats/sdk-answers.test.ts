// Answers of embeddings in the format of the AI SDK's gateway.
import { describe, expect, test } from 'vitest';
import { toSdkEmbeddings } from '../../../../src/gateway/ai/formats/passthrough/sdk-answers.ts';

const answerOf = (data: object[]) => {
  const value = { data, usage: { prompt_tokens: 2 } };
  return { value, bytes: Buffer.from(JSON.stringify(value)) };
};
const vectors = [
  { index: 1, embedding: [2] },
  { index: 0, embedding: [1] },
];

describe('the vectors of an answer', () => {
  test('are in the order of the values', async () => {
    const content = await toSdkEmbeddings(answerOf(vectors), { values: 2, warnings: [] });
    expect(JSON.parse(content.toString())).toEqual({
      embeddings: [[1], [2]],
      usage: { tokens: 2 },
      warnings: [],
    });
  });

  test.each([1, 3])('are refused when there are two for %i values', async (values) => {
    await expect(toSdkEmbeddings(answerOf(vectors), { values, warnings: [] })).rejects.toMatchObject({
      code: 'upstream_failed',
    });
  });
});
