// One call of an action or a command of a service, under its deadline and no longer than the service runs.
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { compileSchema, type SchemaCheck } from '../../kernel/contract/schema.ts';
import { runProgram } from '../processes/index.ts';
import type { ServiceOperation } from './definition.ts';

export interface Operation {
  definition: ServiceOperation;
  check: SchemaCheck;
}

export interface OperationNeeds {
  workspace: string;
  /** The environment of programs. */
  env: Readonly<Record<string, string>>;
  timeoutMs: number;
  clock: Clock;
}

export interface OperationCall {
  operation: Operation;
  payload: Readonly<Record<string, unknown>>;
  /** Aborted when the service stops. */
  running: AbortSignal;
  /** Aborted when the caller is gone. */
  signal: AbortSignal;
  requestId: string;
  log: Log;
}

// More of a program's output than this is nobody's answer.
const maximumOutputBytes = 1024 * 1024;
// A program that was told to end is ended within this, and its call then answers within that.
const endingMs = 10_000;
const wordMs = 100;
const maximumResultBytes = 2 * 1024 * 1024;

/** Throws when a schema is none. */
export function compileOperations(
  owner: string,
  given: Readonly<Record<string, ServiceOperation>> = {},
): ReadonlyMap<string, Operation> {
  return new Map(
    Object.entries(given).map(([name, definition]) => {
      if (!/^[a-z][a-zA-Z0-9-]{0,30}$/.test(name))
        throw new Error(
          `The service "${owner}" has an operation with the name ${JSON.stringify(name)}, which none may have.`,
        );
      return [name, { definition, check: compileSchema(definition.input) }];
    }),
  );
}

/** The result as JSON; throws a Problem when there is none. */
export async function callOperation(
  call: OperationCall,
  { workspace, env, timeoutMs, clock }: OperationNeeds,
): Promise<unknown> {
  const { operation, running, log } = call;
  const verdict = operation.check(call.payload);
  if (!verdict.ok)
    throw new Problem('bad_request', 'invalid_request', 'The payload does not fit.', {
      param: 'payload',
      details: verdict.details.map(({ path, message }) => ({
        path: path === '' ? 'payload' : `payload.${path}`,
        message,
      })),
    });
  const end = new AbortController();
  const signal = AbortSignal.any([running, call.signal, end.signal]);
  const programs = new Set<Promise<unknown>>();
  try {
    const work = Promise.resolve().then(() =>
      operation.definition.run(structuredClone(call.payload) as never, {
        signal,
        requestId: call.requestId,
        log,
        refuse,
        program(command, { input } = {}) {
          const running = runProgram({
            command,
            folder: workspace,
            env,
            ...(input === undefined ? {} : { input }),
            maxOutputBytes: maximumOutputBytes,
            timeoutMs,
            signal,
            clock,
          });
          programs.add(running);
          running.catch(() => {});
          return running;
        },
      }),
    );
    // Whatever becomes of one that is late must not end the process.
    work.catch(() => {});
    // A program has the same deadline, and its own word on being ended says more, so that is waited for.
    const late = clock.sleep(timeoutMs, end.signal).then(async () => {
      if (programs.size > 0)
        await Promise.race([Promise.allSettled(programs), clock.sleep(endingMs, end.signal)]);
      await clock.sleep(wordMs, end.signal);
      throw new Problem(
        'upstream_timeout',
        'action_timeout',
        `The call did not end within ${timeoutMs / 1000} seconds.`,
      );
    });
    late.catch(() => {});
    return asJson(await Promise.race([work, late, stopped(running, end.signal)]));
  } catch (thrown) {
    if (thrown instanceof Problem) throw thrown;
    log.warn({ err: thrown }, 'an operation of a service failed');
    throw new Problem('upstream_failed', 'action_failed', 'The service failed at this call.', {
      cause: thrown,
    });
  } finally {
    end.abort();
  }
}

function stopped(running: AbortSignal, over: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const refuseCall = (): void =>
      reject(
        new Problem('unavailable', 'service_stopped', 'The service was stopped during this call.', {
          headers: { 'retry-after': '1' },
        }),
      );
    if (running.aborted) refuseCall();
    else running.addEventListener('abort', refuseCall, { once: true, signal: over });
  });
}

function refuse(reason: string): never {
  throw new Problem('impossible', 'action_refused', String(reason).toWellFormed().slice(0, 2_000));
}

function asJson(result: unknown): unknown {
  const text = JSON.stringify(result ?? null) ?? 'null';
  if (Buffer.byteLength(text) > maximumResultBytes)
    throw new Problem(
      'upstream_failed',
      'action_failed',
      `The result is larger than ${maximumResultBytes / 1024 / 1024} MiB.`,
    );
  return JSON.parse(text) as unknown;
}
