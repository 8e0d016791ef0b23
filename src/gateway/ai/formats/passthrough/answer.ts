// Reads a whole answer of a provider that supports the caller's format, and edits
// the model's name and errors in its bytes.
import { isUtf8 } from 'node:buffer';
import { nextTurn } from '../../../../kernel/async.ts';
import { maxAnswerBytes, type UpstreamAnswer } from '../../upstream/client.ts';
import { readAll } from '../../upstream/response-body.ts';
import { redactErrorEdits } from '../../upstream/error-text.ts';
import { findError } from '../../upstream/events.ts';
import { applyEdits, topLevelMembers, type Member } from '../../upstream/json-members.ts';
import { chat, type PassthroughFormat } from './formats.ts';
import { modelNameEdits } from './request.ts';
import { wrongFormat, truncatedByProvider } from '../../hub/problems.ts';

export interface PassthroughAnswer {
  /** The answer as JSON, with the catalog's id of the model. */
  bytes: Buffer;
  /** The parsed bytes. */
  value: Record<string, unknown>;
  /** False when the long members of `value` were left empty instead of parsed. */
  isComplete: boolean;
}

// Parsing 32 MiB of vectors takes 100 ms, and the gateway reads only their usage.
const largeAnswerBytes = 1024 * 1024;
const longMemberBytes = 64 * 1024;

/** Throws a Problem for an error, a truncated answer, and an answer in another format. */
export async function readPassthroughAnswer(
  answer: UpstreamAnswer,
  modelId: string,
  format: PassthroughFormat = chat,
): Promise<PassthroughAnswer> {
  const bytes = await readAll(answer.body, maxAnswerBytes);
  if (!isUtf8(bytes)) throw wrongFormat();
  // Yield to the event loop between the steps over a large answer.
  const isLarge = bytes.length > largeAnswerBytes;
  if (isLarge) await nextTurn();
  // Scan before parsing: the scan bounds how many values the parser has to build.
  const object = topLevelMembers(bytes);
  if (isLarge) await nextTurn();
  // The bill counts the text of an answer without usage. Formats without text
  // (vectors, ranks) need only their short members.
  const isComplete = !isLarge || format.textMembers.length > 0;
  const value = object && (isComplete ? parseObject(bytes) : parseShortMembers(bytes, object.members));
  if (object === undefined || value === undefined) {
    if (!bytes.subarray(0, 64).toString('latin1').trimStart().startsWith('{')) throw wrongFormat();
    throw truncatedByProvider();
  }
  if (!format.isAnswer(value)) throw findError(bytes, object) ?? wrongFormat();
  const errorEdits = redactErrorEdits(bytes, object.members, answer.redact);
  const editedBytes = applyEdits(bytes, [...modelNameEdits(object.members, modelId), ...errorEdits]);
  if (errorEdits.length > 0)
    return { bytes: editedBytes, value: parseObject(editedBytes) ?? value, isComplete };
  return { bytes: editedBytes, value: 'model' in value ? { ...value, model: modelId } : value, isComplete };
}

/** Parses the members, but leaves long values empty. Undefined if a short value is not JSON. */
function parseShortMembers(bytes: Buffer, members: readonly Member[]): Record<string, unknown> | undefined {
  const emptyValues: Readonly<Record<number, string>> = { 0x5b: '[]', 0x7b: '{}', 0x22: '""' };
  try {
    return Object.fromEntries(
      members.map(({ name, start, end }) => {
        const text =
          end - start > longMemberBytes
            ? (emptyValues[bytes[start] as number] ?? '')
            : bytes.toString('utf8', start, end);
        return [name, JSON.parse(text) as unknown];
      }),
    );
  } catch {
    return undefined;
  }
}

function parseObject(bytes: Buffer): Record<string, unknown> | undefined {
  try {
    return (JSON.parse(bytes.toString('utf8')) as Record<string, unknown> | null) ?? undefined;
  } catch {
    return undefined;
  }
}
