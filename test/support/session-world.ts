// Shared by the tests of sessions: agents with a scripted gateway, and answers that a test
// controls.
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { SessionEvent } from '@townhall/agent';
import { startAgent, type AgentOptions, type TestAgent } from './agent.ts';
import { testDatabase, type TestDatabase, type TestDatabaseOptions } from './databases.ts';
import { finish, scriptedGateway, type ScriptedAnswer, type ScriptedGateway } from './scripted-gateway.ts';

export interface World {
  gateway: ScriptedGateway;
  start(options?: Partial<AgentOptions>): Promise<TestAgent>;
  /** Closes the agents and replaces the gateway; the rows in the database stay. */
  reset(): Promise<void>;
  /** Closes everything, including agents that were started since the last reset. */
  close(): Promise<void>;
}

/** Several agents with their own ids on one database. */
export async function openWorld(options: Pick<TestDatabaseOptions, 'limits'> = {}): Promise<World> {
  const database: TestDatabase = await testDatabase(options);
  const agents: TestAgent[] = [];
  const closeAgents = () => Promise.all(agents.splice(0).map((agent) => agent.close()));
  const world: World = {
    gateway: await scriptedGateway(),
    async start(agentOptions = {}) {
      const agent = await startAgent({
        gatewayUrl: world.gateway.url,
        name: `agent-${randomUUID()}`,
        model: 'local/echo',
        database: database.database,
        ...agentOptions,
        settings: { drainMs: 0, ...agentOptions.settings },
      });
      agents.push(agent);
      return agent;
    },
    async reset() {
      await closeAgents();
      await world.gateway.close();
      world.gateway = await scriptedGateway();
    },
    async close() {
      await closeAgents();
      await world.gateway.close();
      await database.close();
    },
  };
  return world;
}

export interface ControlledAnswer {
  answer: ScriptedAnswer;
  /** Resolves with the response once the model is called. */
  request: Promise<ServerResponse>;
  /** Resolves once the agent has closed the connection. */
  disconnection: Promise<void>;
  /** Sends a piece of text now. */
  say(delta: string): void;
  end(): void;
}

/** An answer that a test writes piece by piece. */
export function holdAnswer(): ControlledAnswer {
  const requestResponse = Promise.withResolvers<ServerResponse>();
  const disconnection = Promise.withResolvers<void>();
  let response: ServerResponse | undefined;
  const send = (part: object) => response?.write(`data: ${JSON.stringify(part)}\n\n`);
  return {
    answer: {
      async respond(streamResponse) {
        response = streamResponse;
        streamResponse.once('close', () => disconnection.resolve());
        streamResponse.writeHead(200, { 'content-type': 'text/event-stream' });
        for (const part of [
          { type: 'stream-start', warnings: [] },
          { type: 'text-start', id: 't' },
        ])
          send(part);
        requestResponse.resolve(streamResponse);
        await disconnection.promise;
      },
    },
    request: requestResponse.promise,
    disconnection: disconnection.promise,
    say: (delta) => void send({ type: 'text-delta', id: 't', delta }),
    end() {
      send({ type: 'text-end', id: 't' });
      send(finish('stop'));
      response?.end('data: [DONE]\n\n');
    },
  };
}

/** All events up to and including the last one, or up to the end of the stream. */
export async function collect(
  events: AsyncIterable<SessionEvent>,
  isLast: (event: SessionEvent) => boolean = () => false,
): Promise<SessionEvent[]> {
  const collectedEvents: SessionEvent[] = [];
  for await (const event of events) {
    collectedEvents.push(event);
    if (isLast(event)) break;
  }
  return collectedEvents;
}

export const seqs = (events: readonly SessionEvent[]): number[] =>
  events.flatMap((event) => ('seq' in event ? [event.seq] : []));

/** Sends the path exactly as written, without URL normalization. */
export async function rawGet(agent: TestAgent, path: string): Promise<number> {
  const { hostname, port } = new URL(agent.url);
  const clientRequest = request({
    hostname,
    port,
    path,
    headers: { authorization: `Bearer ${agent.token}` },
  });
  clientRequest.end();
  const [response] = (await once(clientRequest, 'response')) as [IncomingMessage];
  response.resume();
  return response.statusCode ?? 0;
}
