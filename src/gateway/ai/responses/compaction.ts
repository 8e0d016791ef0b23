// POST /v1/responses/compact: a model writes a summary of a conversation. The answer has the messages of the
// user and one sealed item with the summary, which a later call sends instead of the whole conversation.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type {
  ResponseAnswer,
  ResponseCompaction,
  ResponseOutputItem,
  ResponseRequest,
} from '../../../contract/gateway/types.gen.ts';
import type { Call, Reply } from '../../../kernel/contract/operation.ts';
import { id } from '../../../kernel/ids.ts';
import type { JsonRecord } from '../../../kernel/json-value.ts';
import { invalidMember, type Problem } from '../../../kernel/problem.ts';
import type { Identity } from '../../identity.ts';
import { type AiContext, callMembers } from '../calls/context.ts';
import { viewerOf } from '../catalog/catalog.ts';
import { readCompleteText, toSummaryInput, selectUserMessages } from '../formats/responses/compaction.ts';
import { ownerOf } from '../calls/owner.ts';
import { openSummaries, readItems, type ResponsesFormat } from './plan.ts';
import { toStoredItems } from './stored/items.ts';
import {
  conversationTooLong,
  maxConversationBytes,
  type StoredResponses,
} from './stored/stored-responses.ts';
import { answerTranslated } from '../handlers/translated-format.ts';
import { maxWarningsLength, warningHeaders, warningsHeader } from '../handlers/warning-headers.ts';
import { unixSeconds } from '../../../kernel/clock.ts';

type CompactOperation = Operations['ai.compactResponse'];
type CompactCall = Call<CompactOperation, Identity>;

/** Throws like `ai.createResponse`. The caller pays for the model call that writes the summary. */
export async function compactResponse(
  context: AiContext & { storedResponses: StoredResponses },
  call: CompactCall,
  format: ResponsesFormat,
): Promise<Reply<CompactOperation>> {
  const { storedResponses, catalog, clock } = context;
  const owner = ownerOf(call.identity);
  const [model] = catalog.chain(viewerOf(call.identity), call.body.model);
  if (model === undefined) throw new Error(`The chain of ${call.body.model} is empty.`);
  const items = await readItems(storedResponses, { body: call.body, owner, model });
  if (items.length === 0) throw nothingToCompact();
  const summaryInput = toSummaryInput(openSummaries(storedResponses, owner, items));
  let compaction: ResponseCompaction | undefined;
  const compact = (response: JsonRecord): JsonRecord => {
    compaction = {
      id: id('resp'),
      object: 'response.compaction',
      created_at: unixSeconds(clock.now()),
      output: compactedItems(items, readCompleteText(response), (summary) =>
        storedResponses.summaries.seal(owner, summary),
      ) as ResponseOutputItem[],
      usage: response['usage'] as ResponseAnswer['usage'] & {},
    };
    return compaction as JsonRecord;
  };
  const reply = await answerTranslated(context, compactionFormat(format, compact), {
    call: withRequest(call, toRequest(call.body, summaryInput)),
  });
  if (compaction === undefined) throw new Error('A call without stream has no whole answer.');
  return { status: 200, body: compaction, headers: withWarnings(call.body, reply.headers) };
}

/** Returns all items unchanged when the model wrote no complete summary, so that no content is lost. */
function compactedItems(
  items: readonly unknown[],
  summary: string | undefined,
  seal: (summary: string) => string,
): JsonRecord[] {
  if (summary === undefined) return toStoredItems(items);
  const messages = toStoredItems(selectUserMessages(items)).map((item) => ({ status: 'completed', ...item }));
  return [...messages, { id: id('cmp'), type: 'compaction', encrypted_content: seal(summary) }];
}

/** The format with each response replaced by its compaction, in translated and passed-through answers. */
function compactionFormat(
  format: ResponsesFormat,
  compact: (response: JsonRecord) => JsonRecord,
): ResponsesFormat {
  return {
    ...format,
    serializeAnswer: (answer, options) =>
      compact(format.serializeAnswer(answer, options)) as unknown as ResponseAnswer,
    rewritePassthrough(result) {
      if (result.kind !== 'whole') return result;
      const { value } = result.answer;
      // The usage record of a passed-through answer takes its outcome from this status.
      const status = value['status'] === 'failed' ? { status: 'failed' } : {};
      return { ...result, answer: { ...result.answer, value: { ...compact(value), ...status } } };
    },
  };
}

const sentMembers = ['model', 'instructions', 'reasoning', 'prompt_cache_key'] as const;
const supportedMembers = new Set<string>([
  ...sentMembers,
  'input',
  'previous_response_id',
  'store',
  'stream',
]);

function toRequest(body: CompactCall['body'], input: JsonRecord[]): ResponseRequest {
  const members = sentMembers.flatMap((name) => (body[name] === undefined ? [] : [[name, body[name]]]));
  return { ...(Object.fromEntries(members) as ResponseRequest), input, store: false };
}

/** Adds a warning for each member that has no effect on a summary, such as `tools`. */
function withWarnings(body: CompactCall['body'], headers: Record<string, string>): Record<string, string> {
  const droppedMembers = Object.keys(body).filter(
    (name) => !supportedMembers.has(name) && body[name] !== null,
  );
  const warnings = warningHeaders(
    droppedMembers.map((feature) => ({
      type: 'unsupported',
      feature,
      details: 'has no effect on a compaction',
    })),
  );
  const texts = [headers[warningsHeader], warnings[warningsHeader]].filter((text) => text !== undefined);
  if (texts.length === 0) return headers;
  return { ...headers, [warningsHeader]: texts.join('; ').slice(0, maxWarningsLength) };
}

/** The call with the request for a summary instead of its own body. */
function withRequest(call: CompactCall, body: ResponseRequest) {
  const rawBody = Buffer.from(JSON.stringify(body));
  if (rawBody.length > maxConversationBytes) throw conversationTooLong();
  return { ...callMembers(call), timing: call.timing, body, rawBody };
}

function nothingToCompact(): Problem {
  return invalidMember('input', 'must have items unless previous_response_id continues a conversation');
}
