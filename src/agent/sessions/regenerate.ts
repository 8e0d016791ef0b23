// Makes the model answer an input again. The previous answer and all later messages stay in the log,
// marked as replaced, and later prompts omit them.
import type { UiMessage } from '../../contract/agent/types.gen.ts';
import { id } from '../../kernel/ids.ts';
import { Problem } from '../../kernel/problem.ts';
import { type Conversation, type ConversationMessage, hasContent } from './event-log/conversation.ts';
import { readMessage } from './event-log/events.ts';
import { segmentsOf, type SessionRecord } from './event-log/session-store.ts';
import { withStates } from './message-states.ts';
import { messageNotFound } from './runs/problems.ts';
import type { Replacement } from './runs/submission.ts';
import { keyedRequestId, type HandlerOptions, type SessionHandlers } from './session-options.ts';

// Every replaced message adds an event to the statement that admits the run; the limit bounds that statement.
const maxReplaced = 200;

export function regenerateHandlers(options: HandlerOptions): SessionHandlers<'sessions.regenerate'> {
  return {
    'sessions.regenerate': async (call) => {
      const { path, body = {} } = call;
      const session = await options.requireSession(path.sessionId);
      const { receipt } = await options.runs.submit({
        session: { id: session.id },
        create: null,
        runId: id('run'),
        queueItemId: id('qit'),
        // The messages to replace are chosen now. If the run waited in the queue, further messages could
        // follow them before it starts.
        delivery: 'reject',
        origin: 'sdk',
        input: null,
        replaces: await chooseReplacement(options, session, body.messageId),
        messageId: id('msg'),
        model: body.model ?? null,
        reasoningEffort: body.reasoningEffort ?? null,
        promptId: null,
        promptHash: null,
        expiresInMs: null,
        requestId: keyedRequestId(call) ?? null,
      });
      return { status: 202, body: receipt };
    },
  };
}

async function chooseReplacement(
  options: HandlerOptions,
  session: SessionRecord,
  messageId: string | undefined,
): Promise<Replacement> {
  const conversation = await options.eventLog.conversation(session, session.headSeq, null);
  // A note about files has the role `user` too, but no run answers it.
  const messages = conversation.messages.filter(({ isNote }) => isNote !== true);
  const index =
    messageId === undefined
      ? messages.length - 1
      : await findMessageIndex(options, session, messages, messageId);
  const inputIndex = messages.slice(0, index + 1).findLastIndex(({ message }) => message.role === 'user');
  const input = messages[inputIndex];
  if (input === undefined) throw nothingToRegenerate('The session has no input to answer again.');
  const answersAndLater = messages.slice(inputIndex + 1).map(({ message }) => message.id);
  const messageIds = [...answersAndLater, ...(await findEmptyAnswers(options, session, input))];
  requireReplaceable(conversation, messageIds);
  return { inputMessageId: input.message.id, messageIds, atSeq: session.headSeq };
}

async function findMessageIndex(
  { events }: HandlerOptions,
  session: SessionRecord,
  messages: readonly ConversationMessage[],
  messageId: string,
): Promise<number> {
  const index = messages.findIndex(({ message }) => message.id === messageId);
  if (index >= 0) return index;
  if ((await events.messageEvents(segmentsOf(session), messageId)).length > 0)
    throw nothingToRegenerate(
      'This message is not part of the conversation that the model sees: it was replaced or summarized, no run has started with it, or it is empty; fork the session at this message instead.',
    );
  throw messageNotFound();
}

function requireReplaceable({ cut }: Conversation, replacedIds: readonly string[]): void {
  if (cut !== null && replacedIds.includes(cut.messageId))
    throw nothingToRegenerate(
      'The first steps of the answer are part of a summary; fork the session before the answer instead.',
    );
  if (replacedIds.length > maxReplaced)
    throw nothingToRegenerate(
      `More than ${maxReplaced} messages would be replaced; fork the session at the input instead.`,
    );
}

/**
 * The ids of empty answers after the input, which the conversation omits, unless they are replaced already.
 */
async function findEmptyAnswers(
  options: HandlerOptions,
  session: SessionRecord,
  { seq }: ConversationMessage,
): Promise<string[]> {
  const emptyAnswers: UiMessage[] = [];
  for (let from: number | undefined = seq; from !== undefined;) {
    const page = await options.events.messagePage(segmentsOf(session), { from, order: 'asc', limit: 100 });
    const messages = page.events.map(readMessage);
    emptyAnswers.push(...messages.filter((message) => message.role === 'assistant' && !hasContent(message)));
    from = page.hasMore ? page.events.at(-1)?.seq : undefined;
  }
  const answers = await withStates(options, session, emptyAnswers);
  return answers.filter(({ metadata }) => metadata?.['status'] !== 'replaced').map(({ id }) => id);
}

function nothingToRegenerate(message: string): Problem {
  return new Problem('conflict', 'nothing_to_regenerate', message, { param: 'messageId' });
}
