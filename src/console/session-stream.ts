// Streams the events of one session to one page. Backpressure reaches the agent: its stream is read
// at the pace of the page. The client reconnects to the agent by itself, so the page does not
// notice such an interruption.
import type { ServerResponse } from 'node:http';
import type { SessionEvent } from '@townhall/agent';
import type { SseEvent } from '../kernel/contract/operation.ts';
import { defaultStreamLimits, writeEvents } from '../kernel/http/sse.ts';
import type { AgentLink } from './agent-link.ts';
import { describeFailure } from './failures.ts';

/**
 * Resolves when the stream has ended. A page reconnects by itself, except after the event `failed`,
 * which contains the reason.
 */
export async function streamSession(
  response: ServerResponse,
  {
    link,
    sessionId,
    after,
    signal,
    requestId,
  }: {
    link: AgentLink;
    sessionId: string;
    /** The sequence number of the last event that the page has. */
    after: number;
    /** Aborted when the console closes. */
    signal: AbortSignal;
    requestId: string;
  },
): Promise<void> {
  const disconnection = new AbortController();
  response.once('close', () => disconnection.abort());
  const events = link.client.sessions.follow(
    { sessionId, after },
    { signal: AbortSignal.any([signal, disconnection.signal]) },
  );
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  await writeEvents(response, toFrames(events), {
    limits: defaultStreamLimits,
    onError: (error) => `event: failed\ndata: ${JSON.stringify(describeFailure(error, requestId).body)}\n\n`,
  });
}

async function* toFrames(
  events: AsyncIterable<SessionEvent>,
): AsyncGenerator<SseEvent<SessionEvent>, void, void> {
  for await (const event of events) yield { data: event };
}
