// Converts answers of embeddings and rerank to the format of the AI SDK's gateway. Vectors are copied as
// bytes, because parsing 32 MiB of them would block the event loop for 100 ms.
import { nextTurn } from '../../../../kernel/async.ts';
import { asRecord, parseJsonOrUndefined } from '../../../../kernel/json-value.ts';
import type { Warning } from '../../hub/language-model.ts';
import { arrayItems, type Span, topLevelMembers } from '../../upstream/json-members.ts';
import type { PassthroughAnswer } from './answer.ts';
import { wrongFormat } from '../../hub/problems.ts';

/**
 * Throws a Problem if the vectors are not lists of numbers but, for example, base64, or if their number
 * differs from the number of values in the request.
 */
export async function toSdkEmbeddings(
  { bytes, value }: Pick<PassthroughAnswer, 'bytes' | 'value'>,
  { values: valueCount, warnings }: { values: number; warnings: readonly Warning[] },
): Promise<Buffer> {
  const items = await readVectors(bytes);
  if (items.length !== valueCount) throw wrongFormat();
  const vectors = items.map(({ start, end }) => bytes.subarray(start, end));
  const pieces: Uint8Array[] = [Buffer.from('{"embeddings":[')];
  for (const [position, vector] of vectors.entries()) {
    if (position > 0) pieces.push(Buffer.from(','));
    pieces.push(vector);
  }
  const { prompt_tokens: promptTokens, total_tokens: totalTokens } = asRecord(value['usage']);
  const tokens = [promptTokens, totalTokens].find((count) => Number.isSafeInteger(count));
  const usage = tokens === undefined ? null : { tokens };
  pieces.push(Buffer.from(`],"usage":${JSON.stringify(usage)},"warnings":${JSON.stringify(warnings)}}`));
  return Buffer.concat(pieces);
}

interface Vector {
  index: number;
  start: number;
  end: number;
}

// Yields to the event loop between the steps over a large answer, and between batches of vectors.
const vectorsPerTurn = 256;

async function readVectors(bytes: Buffer): Promise<Vector[]> {
  await nextTurn();
  const data = topLevelMembers(bytes)?.members.find(({ name }) => name === 'data');
  await nextTurn();
  const items = data && arrayItems(bytes, data.start, data.end);
  if (items === undefined) throw wrongFormat();
  const vectors: Vector[] = [];
  for (const [position, item] of items.entries()) {
    if (position % vectorsPerTurn === 0) await nextTurn();
    vectors.push(vectorOf(bytes, item, position));
  }
  return vectors.toSorted((left, right) => left.index - right.index);
}

function vectorOf(bytes: Buffer, { start, end }: Span, position: number): Vector {
  const members = topLevelMembers(bytes, start, end)?.members ?? [];
  const vector = members.find(({ name }) => name === 'embedding');
  if (vector === undefined || bytes[vector.start] !== openBracket) throw wrongFormat();
  const index = members.find(({ name }) => name === 'index');
  const number = index === undefined ? position : Number(bytes.toString('latin1', index.start, index.end));
  return { ...vector, index: Number.isSafeInteger(number) ? number : position };
}

const openBracket = 0x5b;

// Some servers repeat the documents, so that long members of the answer were left empty. Up to this size,
// such an answer is parsed again here.
const maxRankingBytes = 4 * 1024 * 1024;

/** The order of the documents. Throws a Problem for an answer in another format, or of more than 4 MiB. */
export function toRanking({ bytes, value, isComplete }: PassthroughAnswer): RankedDocument[] {
  if (!isComplete && bytes.length > maxRankingBytes) throw wrongFormat();
  const { results, data } = isComplete ? value : asRecord(parseJsonOrUndefined(bytes.toString('utf8')));
  const documents = Array.isArray(results) ? results : data;
  if (!Array.isArray(documents)) throw wrongFormat();
  return documents.map((document: unknown) => {
    const { index, relevance_score: score } = asRecord(document);
    if (typeof index !== 'number' || typeof score !== 'number') throw wrongFormat();
    return { index, relevanceScore: score };
  });
}

interface RankedDocument {
  index: number;
  relevanceScore: number;
}
