// The display order of messages. The log orders them by completion: six queued prompts precede the
// first answer. Here each prompt precedes the answer of its own run, and queued prompts come last.

/** The members of a message that decide its place. */
interface OrderableMessage {
  id: string;
  role: 'system' | 'user' | 'assistant';
  runId: string | null;
  isOpen: boolean;
}

export interface OrderInput<Message extends OrderableMessage> {
  /** In the order of the log. */
  messages: readonly Message[];
  queue: readonly { runId: string; queuePosition: number }[];
  activeRunId: string | null;
}

interface Turn<Message> {
  prompts: Message[];
  answers: Message[];
  /** Prompts without an answer that were accepted right after this one. */
  rest: Message[];
  /**
   * Orders the turns: answered turns by their first answer in the log, then the running turn, then the queue.
   */
  rank: number;
}

// Above the index of any message in the log.
const activeRank = 1e9;

export function orderMessages<Message extends OrderableMessage>({
  messages,
  queue,
  activeRunId,
}: OrderInput<Message>): Message[] {
  const turns = createTurns(messages);
  for (const { runId, queuePosition } of queue) {
    const turn = turns.get(runId);
    if (turn?.answers.length === 0) turn.rank = activeRank + 1 + queuePosition;
  }
  const activeTurn = activeRunId === null ? undefined : turns.get(activeRunId);
  if (activeTurn?.answers.length === 0) activeTurn.rank = activeRank;
  const firstPrompts: Message[] = [];
  const steeredPrompts = new Map<string, Message[]>();
  let nearestTurn: Turn<Message> | undefined;
  for (const [index, message] of messages.entries()) {
    if (message.role === 'assistant') continue;
    const turn = turns.get(keyOf(message)) as Turn<Message>;
    if (Number.isFinite(turn.rank)) {
      nearestTurn = turn;
      continue;
    }
    const answerId = steeredInto(messages, index, turns);
    if (answerId !== undefined)
      steeredPrompts.set(answerId, [...(steeredPrompts.get(answerId) ?? []), message]);
    else (nearestTurn?.rest ?? firstPrompts).push(message);
  }
  const rankedTurns = [...turns.values()]
    .filter(({ rank }) => Number.isFinite(rank))
    .sort((a, b) => a.rank - b.rank);
  return [
    ...firstPrompts,
    ...rankedTurns.flatMap(({ prompts, answers, rest }) => [
      ...prompts,
      ...answers.flatMap((answer) => [answer, ...(steeredPrompts.get(answer.id) ?? [])]),
      ...rest,
    ]),
  ];
}

const keyOf = ({ id, runId }: OrderableMessage): string => runId ?? id;

function createTurns<Message extends OrderableMessage>(
  messages: readonly Message[],
): Map<string, Turn<Message>> {
  const turns = new Map<string, Turn<Message>>();
  for (const [index, message] of messages.entries()) {
    const key = keyOf(message);
    const turn = turns.get(key) ?? { prompts: [], answers: [], rest: [], rank: Infinity };
    turns.set(key, turn);
    if (message.role === 'assistant') turn.answers.push(message);
    else turn.prompts.push(message);
    // A message without a run keeps its place in the log.
    if (message.role === 'assistant' || message.runId === null) turn.rank = Math.min(turn.rank, index);
  }
  return turns;
}

// A steering prompt ends the current message of a running model: the run continues with another
// message. Returns the id of the ended message.
function steeredInto(
  messages: readonly OrderableMessage[],
  index: number,
  turns: ReadonlyMap<string, Turn<OrderableMessage>>,
): string | undefined {
  let position = index + 1;
  while (messages[position]?.role === 'user') position += 1;
  const next = messages[position];
  if (next === undefined || next.isOpen) return undefined;
  return turns.get(keyOf(next))?.answers.at(-1)?.id === next.id ? undefined : next.id;
}
