// The events of one session on their way to one page. The page reads at its own pace and the agent is read at the same;
// when the page goes, the agent's stream goes. Losses between console and agent are mended by the client, unseen.
import type { ServerResponse } from 'node:http';
import type { SessionEvent } from '@townhall/agent';
import type { SseEvent } from '../kernel/contract/operation.ts';
import { defaultStreamLimits, writeEvents } from '../kernel/http/sse.ts';
import type { AgentLink } from './agent-link.ts';
import { describeFailure } from './operations.ts';

export interface SessionStream {
  link: AgentLink;
  sessionId: string;
  after: number;
  /** Aborted when the console ends. */
  signal: AbortSignal;
  requestId: string;
}

/** Resolves when the stream is over; a page whose stream just ends comes back by itself. Its last event is `failed`, with the reason, when it will not go on later either. */
export async function followSession(
  response: ServerResponse,
  { link, sessionId, after, signal, requestId }: SessionStream,
): Promise<void> {
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  const events = link.client.sessions.follow(
    { sessionId, after },
    { signal: AbortSignal.any([signal, gone.signal]) },
  );
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  await writeEvents(response, framed(events), {
    limits: defaultStreamLimits,
    onError: (error) => `event: failed\ndata: ${JSON.stringify(describeFailure(error, requestId).body)}\n\n`,
  });
}

async function* framed(
  events: AsyncIterable<SessionEvent>,
): AsyncGenerator<SseEvent<SessionEvent>, void, void> {
  for await (const event of events) yield { data: event };
}
