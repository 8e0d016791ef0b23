// The responses format for a planned call (plan.ts): answers and events get the ids of the call, and the
// final response is stored before the caller receives it.
import type { ResponseEvent } from '../../../contract/gateway/types.gen.ts';
import { eventOf, splitFrames } from '../../../kernel/http/reply-events.ts';
import { isRecord, type JsonRecord } from '../../../kernel/json-value.ts';
import type { Log } from '../../../kernel/log.ts';
import type { PassthroughResult } from '../formats/passthrough/calls.ts';
import { finalEventTypes } from '../formats/responses/answer.ts';
import type { ResponsePlan, ResponsesFormat } from './plan.ts';
import type { StoredResponses } from './stored/stored-responses.ts';

/** The response as its caller sees it. */
export function present<Response extends object>(response: Response, plan: ResponsePlan): Response {
  const { responseId, previousId, isStored, isBackground } = plan;
  const view = { ...response, id: responseId, previous_response_id: previousId, store: isStored };
  return isBackground ? { ...view, background: true } : view;
}

export interface PlannedFormat {
  format: ResponsesFormat;
  /** Stores the response of a call without stream. `unsaved` is the response to send when that failed. */
  saveWhole(): Promise<'saved' | 'not_stored' | { unsaved: JsonRecord }>;
}

/** The format with the ids of the call. A stream's response is stored before its final event is sent. */
export function plannedFormat(
  format: ResponsesFormat,
  plan: ResponsePlan,
  { storedResponses, log }: { storedResponses: StoredResponses; log: Log },
): PlannedFormat {
  let wholeResponse: JsonRecord | undefined;
  const presentWhole = <Response extends object>(response: Response): Response => {
    const view = present(response, plan);
    wholeResponse = view as JsonRecord;
    return view;
  };
  const save = (response: JsonRecord) => saveResponse(response, plan, { storedResponses, log });
  return {
    format: {
      ...format,
      serializeAnswer: (answer, options) => presentWhole(format.serializeAnswer(answer, options)),
      serializeStream: (parts, options) => presentEvents(format.serializeStream(parts, options), plan, save),
      rewritePassthrough: (result) =>
        result.kind === 'whole'
          ? rewriteWhole(result, presentWhole)
          : { kind: 'stream', content: rewriteStream(result.content, plan, save) },
    },
    async saveWhole() {
      if (wholeResponse === undefined || !plan.isStored) return 'not_stored';
      const response = await save(wholeResponse);
      return response === wholeResponse ? 'saved' : { unsaved: response };
    },
  };
}

type Save = (response: JsonRecord) => Promise<JsonRecord>;

/**
 * Returns the stored response. If the database fails, returns it with `store: false` instead of an error,
 * because the caller has already paid for it.
 */
async function saveResponse(
  response: JsonRecord,
  { responseId, owner, previousId, isStored, isBackground, request }: ResponsePlan,
  { storedResponses, log }: { storedResponses: StoredResponses; log: Log },
): Promise<JsonRecord> {
  // A background response already has a row, and its run stores the final response there.
  if (!isStored || isBackground) return response;
  try {
    await storedResponses.save({ responseId, owner, previousId, input: request.input, response });
    return response;
  } catch (error) {
    log.error({ err: error, responseId }, 'a response could not be stored');
    return { ...response, store: false };
  }
}

function rewriteWhole(
  result: Extract<PassthroughResult, { kind: 'whole' }>,
  presentWhole: (response: JsonRecord) => JsonRecord,
): PassthroughResult {
  const value = presentWhole(result.answer.value);
  return { ...result, answer: { ...result.answer, value, bytes: Buffer.from(JSON.stringify(value)) } };
}

async function presentEvent(event: JsonRecord, plan: ResponsePlan, save: Save): Promise<JsonRecord> {
  const { type, response } = event;
  if (!isRecord(response)) return event;
  const view = present(response, plan);
  return {
    ...event,
    response: finalEventTypes.has(type) ? await save(view) : view,
  };
}

async function* presentEvents(
  events: AsyncIterable<ResponseEvent>,
  plan: ResponsePlan,
  save: Save,
): AsyncGenerator<ResponseEvent> {
  for await (const event of events) yield (await presentEvent(event, plan, save)) as ResponseEvent;
}

// Only events of these types contain a response; all other bytes are passed on unchanged.
const responseEventType = /"response\.(?:created|queued|in_progress|completed|incomplete|failed)"/;

/** Each chunk of `content` consists of complete events. */
async function* rewriteStream(
  content: AsyncIterable<Uint8Array>,
  plan: ResponsePlan,
  save: Save,
): AsyncGenerator<Uint8Array> {
  for await (const bytes of content) {
    const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
    if (responseEventType.test(text)) yield* rewriteFrames(text, plan, save);
    else yield bytes;
  }
}

async function* rewriteFrames(text: string, plan: ResponsePlan, save: Save): AsyncGenerator<Uint8Array> {
  for (const frame of splitFrames(text)) {
    const event = responseEventType.test(frame) ? eventOf(frame) : undefined;
    if (event === undefined || !isRecord(event['response'])) yield Buffer.from(frame);
    else {
      const view = await presentEvent(event, plan, save);
      yield Buffer.from(`event: ${String(event['type'])}\ndata: ${JSON.stringify(view)}\n\n`);
    }
  }
}
