// Builds the methods of a client from the generated operations. The generated classes supply only
// the target of each operation; our transport makes the calls. A new operation of the contract
// needs no change here.

import type { CallOptions, Members, StreamCallOptions, Target } from './call-options.ts';
import { createAbortScope, type AbortScope } from './abort-scope.ts';
import {
  type CallResponse,
  type ItemOf,
  type PendingCall,
  type PendingPage,
  withPages,
} from './pending-call.ts';
import type { OpenedStream, StreamRule, Transport } from './transport.ts';

/** Events that are read as they arrive. */
export interface EventStream<Event> extends AsyncIterable<Event> {}

/** The events of one streamed call. The first read makes the call; it can be read once. */
export interface StreamedCall<Event> extends EventStream<Event> {
  /**
   * Makes the call now; resolves with its headers when the server has accepted it,
   * and the stream to read as `data`.
   */
  withResponse(): Promise<CallResponse<EventStream<Event>>>;
}

type Method = (...parameters: never[]) => unknown;
type Options<Operation extends Method> = NonNullable<Parameters<Operation>[0]>;
type Part<Source, Name extends string> = Source extends { [Key in Name]?: infer Value }
  ? NonNullable<Value>
  : never;
type OrNothing<Value> = [Value] extends [never] ? unknown : Value;

/**
 * The members of an operation in one object: those of its path, and those of its
 * body or, when it takes none, of its query. The names are the contract's own.
 */
export type MembersOf<Operation extends Method> = OrNothing<Part<Options<Operation>, 'path'>> &
  OrNothing<
    [Part<Options<Operation>, 'body'>] extends [never]
      ? Part<Options<Operation>, 'query'>
      : Part<Options<Operation>, 'body'>
  >;

type Answer<Operation extends Method> = Exclude<Part<Awaited<ReturnType<Operation>>, 'data'>, undefined>;
type Events<Operation extends Method> =
  Awaited<ReturnType<Operation>> extends { stream: AsyncGenerator<infer Event, unknown, unknown> }
    ? Event
    : never;

// An operation without required members may be called without the object.
type Arguments<Members, Extra> = unknown extends Members
  ? [members?: undefined, options?: Extra]
  : {} extends Members
    ? [members?: Members, options?: Extra]
    : [members: Members, options?: Extra];

export type ClientMethod<Operation extends Method> = [Events<Operation>] extends [never]
  ? (...parameters: Arguments<MembersOf<Operation>, CallOptions>) => Pending<Answer<Operation>>
  : (...parameters: Arguments<MembersOf<Operation>, StreamCallOptions>) => StreamedCall<Events<Operation>>;

type Pending<Data> = [ItemOf<Data>] extends [never] ? PendingCall<Data> : PendingPage<Data, ItemOf<Data>>;

type Service<Generated> = {
  readonly [Name in keyof Generated]: Generated[Name] extends Method ? ClientMethod<Generated[Name]> : never;
};

/** The services of a generated container, each with one method per operation. */
export type Services<Container> = { readonly [Name in keyof Container]: Service<Container[Name]> };

type Invoke = (members?: Readonly<Record<string, unknown>>, options?: CallOptions) => unknown;

/** All services of the generated container; a client replaces single methods by handwritten ones. */
export function createServices<Container extends object>(
  container: Container,
  transport: Transport,
): Services<Container> {
  const services = namesOf(container).map((service) => {
    const operations = (container as Record<string, object>)[service] as object;
    const methods = namesOf(operations).map((name): [string, Invoke] => [
      name,
      createMethod(targetOf(operations, name), transport),
    ]);
    return [service, Object.fromEntries(methods)];
  });
  return Object.fromEntries(services) as Services<Container>;
}

function createMethod(target: Target, transport: Transport): Invoke {
  if (target.streams) return (members, options) => createEventStream(transport, target, members, options);
  const call = (members: Members = {}, options?: CallOptions) => transport.call(target, members, options);
  if (target.method !== 'GET') return call;
  return (members, options) =>
    withPages(call(members, options), (cursor) => call({ ...members, cursor }, options));
}

/** A streamed call, which is made when it is first read. */
export function createEventStream<Event>(
  transport: Transport,
  target: Target,
  members: Readonly<Record<string, unknown>> = {},
  options: StreamCallOptions = {},
  rule: StreamRule<Event> = {},
): StreamedCall<Event> {
  let isConsumed = false;
  let call: { scope: AbortScope; response: Promise<OpenedStream<Event>> } | undefined;

  function open() {
    if (call !== undefined) return call;
    const scope = createAbortScope(options.signal);
    return (call = { scope, response: transport.openStream(target, members, options, rule, scope) });
  }

  const stream: StreamedCall<Event> = {
    async withResponse() {
      const { status, headers, requestId, credits } = await open().response;
      return { data: stream, status, headers, requestId, credits };
    },
    [Symbol.asyncIterator]() {
      // A second read would have to repeat and pay for the call.
      if (isConsumed)
        throw new TypeError('This stream has been read already; make the call again for another answer.');
      isConsumed = true;
      const events = read();
      return {
        next: () => events.next(),
        // A generator's own `return` waits for a pending event; closing first does not.
        return: () => {
          call?.scope.close();
          return events.return();
        },
      };

      async function* read(): AsyncGenerator<Event, void, undefined> {
        try {
          yield* (await open().response).events;
        } finally {
          call?.scope.close();
        }
      }
    },
  };
  return stream;
}

/** The target of the operation `name` of a generated service. */
export function targetOf(operations: object, name: string): Target {
  const method = (operations as Record<string, (options: object) => unknown>)[name];
  if (method === undefined) throw new TypeError(`The contract has no operation "${name}".`);
  return method.call(operations, {}) as Target;
}

/** The options that a generated method passes to its HTTP client. */
interface GeneratedOptions {
  url: string;
  security?: unknown;
  headers?: Record<string, unknown>;
  bodySerializer?: (body: unknown) => unknown;
}

/**
 * Replaces the generated HTTP client in the generated classes: instead of sending, it returns the
 * target. Pass it to the container as its `client`.
 */
export function createTargetReader(): unknown {
  const verbs = ['get', 'head', 'post', 'put', 'patch', 'delete'];
  const describeTarget = (streams: boolean) =>
    Object.fromEntries(
      verbs.map((verb) => [
        verb,
        (options: GeneratedOptions): Target => ({
          method: verb.toUpperCase(),
          url: options.url,
          secured: options.security !== undefined,
          streams,
          // The generated code names a content type exactly for operations with a body.
          bodyType: options.headers?.['Content-Type'] as string | null | undefined,
          serializeBody: options.bodySerializer,
        }),
      ]),
    );
  return { ...describeTarget(false), sse: describeTarget(true) };
}

function namesOf(operations: object): string[] {
  return Object.getOwnPropertyNames(Object.getPrototypeOf(operations)).filter(
    (name) => name !== 'constructor',
  );
}

/** The base URL without its trailing slash; throws a TypeError when it is invalid. */
export function readBaseUrl(baseUrl: string): string {
  const url = URL.canParse(baseUrl) ? new URL(baseUrl) : undefined;
  if (
    url === undefined ||
    !/^https?:$/.test(url.protocol) ||
    url.username ||
    url.password ||
    url.search ||
    url.hash
  ) {
    throw new TypeError(
      'baseUrl must be a whole http or https address without credentials, query or fragment.',
    );
  }
  return url.origin + url.pathname.replace(/\/+$/, '');
}
