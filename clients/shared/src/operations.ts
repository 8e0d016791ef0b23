// Makes the methods of a client out of the generated operations. The generated classes are asked only where each
// operation lives; the calls themselves go through our transport. A new operation of the contract needs nothing here.

import type { CallOptions, StreamCallOptions, Target } from './call-options.ts';
import { createLifeline } from './lifeline.ts';
import type { StreamRule, Transport } from './transport.ts';

/** The events of one streamed call. The call is made when the first event is asked for, and once only. */
export interface EventStream<Event> extends AsyncIterable<Event> {}

type Method = (...parameters: never[]) => unknown;
type Options<Operation extends Method> = NonNullable<Parameters<Operation>[0]>;
type Part<Source, Name extends string> = Source extends { [Key in Name]?: infer Value }
  ? NonNullable<Value>
  : never;
type OrNothing<Value> = [Value] extends [never] ? unknown : Value;

/**
 * The members of an operation in one object: those of its path, and those of its body or, when it takes none, of its
 * query. The names are the contract's own.
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
  ? (...parameters: Arguments<MembersOf<Operation>, CallOptions>) => Promise<Answer<Operation>>
  : (...parameters: Arguments<MembersOf<Operation>, StreamCallOptions>) => EventStream<Events<Operation>>;

type Service<Generated> = {
  readonly [Name in keyof Generated]: Generated[Name] extends Method ? ClientMethod<Generated[Name]> : never;
};

/** The services of a generated container, each with a method an operation. */
export type Services<Container> = { readonly [Name in keyof Container]: Service<Container[Name]> };

type Invoke = (members?: Readonly<Record<string, unknown>>, options?: CallOptions) => unknown;

/** Everything that `generated` has; by hand is only what a client puts in place of single methods. */
export function createServices<Container extends object>(
  generated: Container,
  transport: Transport,
): Services<Container> {
  const services = namesOf(generated).map((service) => {
    const operations = (generated as Record<string, object>)[service] as object;
    const methods = namesOf(operations).map((name): [string, Invoke] => [
      name,
      createMethod(targetOf(operations, name), transport),
    ]);
    return [service, Object.fromEntries(methods)];
  });
  return Object.fromEntries(services) as Services<Container>;
}

function createMethod(target: Target, transport: Transport): Invoke {
  return target.streams
    ? (members, options) => createEventStream(transport, target, members, options)
    : (members, options) => transport.call(target, members ?? {}, options);
}

/** A streamed call that is made when it is first read. */
export function createEventStream<Event>(
  transport: Transport,
  target: Target,
  members: Readonly<Record<string, unknown>> = {},
  options: StreamCallOptions = {},
  rule: StreamRule<Event> = {},
): EventStream<Event> {
  let isConsumed = false;
  return {
    [Symbol.asyncIterator]() {
      // A second reading would have to send, and pay for, the call again.
      if (isConsumed)
        throw new TypeError('This stream has been read already; make the call again for another answer.');
      isConsumed = true;
      const lifeline = createLifeline(options.signal);
      const events = read();
      return {
        next: () => events.next(),
        // A generator's own `return` waits for the event that is being awaited; closing first does not.
        return: () => {
          lifeline.close();
          return events.return();
        },
      };

      async function* read(): AsyncGenerator<Event, void, undefined> {
        try {
          const stream = await transport.openStream(target, members, options, rule, lifeline);
          yield* stream.events;
        } finally {
          lifeline.close();
        }
      }
    },
  };
}

/** Where the operation `name` of a generated service lives. */
export function targetOf(operations: object, name: string): Target {
  return (
    (operations as Record<string, (options: object) => unknown>)[name] as (options: object) => unknown
  ).call(operations, {}) as Target;
}

interface Asked {
  url: string;
  security?: unknown;
  headers?: Record<string, unknown>;
  bodySerializer?: (body: unknown) => unknown;
}

/**
 * Stands in for the generated HTTP client inside the generated classes: where that one would send, this one tells the
 * target. Pass it to the container as its `client`.
 */
export function createTargetReader(): unknown {
  const verbs = ['get', 'head', 'post', 'put', 'patch', 'delete'];
  const describeTarget = (streams: boolean) =>
    Object.fromEntries(
      verbs.map((verb) => [
        verb,
        (options: Asked): Target => ({
          method: verb.toUpperCase(),
          url: options.url,
          secured: options.security !== undefined,
          streams,
          // The generated code names a content type exactly where the operation takes a body.
          bodyType: options.headers?.['Content-Type'] as string | null | undefined,
          serializeBody: options.bodySerializer,
        }),
      ]),
    );
  return { ...describeTarget(false), sse: describeTarget(true) };
}

function namesOf(generated: object): string[] {
  return Object.getOwnPropertyNames(Object.getPrototypeOf(generated)).filter(
    (name) => name !== 'constructor',
  );
}

/** The base address without its trailing slash; throws a TypeError when it is none. */
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
