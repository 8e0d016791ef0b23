// One call of a service's action or command. It fails at its deadline, and when the service stops.
import { settlesWithin } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { compileSchema, type SchemaCheck } from '../../kernel/contract/schema.ts';
import {
  runProcess,
  type ProcessResult,
  type SandboxedProgram,
  type SandboxSettings,
} from '../processes/index.ts';
import { refuse } from '../refusal.ts';
import type { ServiceCallContext, ServiceOperation } from '../service-definition.ts';

export interface Operation {
  definition: ServiceOperation;
  check: SchemaCheck;
}

export type PrepareProgram = (request: {
  command: readonly string[];
  ownEnv?: Readonly<Record<string, string>> | undefined;
  settings?: SandboxSettings | undefined;
}) => Promise<SandboxedProgram>;

export interface OperationOptions {
  /** Returns the command that runs a program in its sandbox. */
  prepareProgram: PrepareProgram;
  /** The deadline of a call, which its programs share. */
  timeoutMs: number;
  clock: Clock;
}

export interface OperationCall {
  operation: Operation;
  payload: Readonly<Record<string, unknown>>;
  /** Aborted when the service stops. */
  running: AbortSignal;
  /** The sandbox settings of the service. */
  sandbox?: SandboxSettings | undefined;
  /** Aborted when the caller disconnects. */
  signal: AbortSignal;
  requestId: string;
  log: Log;
}

const maxProcessOutputBytes = 1024 * 1024;
const maxResultBytes = 2 * 1024 * 1024;
// At the deadline of a call its processes are stopped as well. The call waits up to ten seconds for them
// to exit, and then a tenth of a second for the action to report how they ended.
const processEndMs = 10_000;
const lastResultMs = 100;

/** Throws for an invalid name or schema. */
export function compileOperations(
  service: string,
  definitions: Readonly<Record<string, ServiceOperation>> = {},
): ReadonlyMap<string, Operation> {
  return new Map(
    Object.entries(definitions).map(([name, definition]) => {
      if (!/^[a-z][a-zA-Z0-9-]{0,30}$/.test(name))
        throw new Error(
          `The service "${service}" has an operation named ${JSON.stringify(name)}; a name is ` +
            'a lower-case letter, then letters, digits and hyphens, 31 at most.',
        );
      return [name, { definition, check: compileSchema(definition.input) }];
    }),
  );
}

/**
 * The result as JSON. Throws a Problem when the call is refused, fails, times out, or outlives its service.
 * When its caller disconnects, only the signal of its context is aborted.
 */
export async function callOperation(call: OperationCall, options: OperationOptions): Promise<unknown> {
  const { operation, running, log } = call;
  checkPayload(operation, call.payload);
  const end = new AbortController();
  const signal = AbortSignal.any([running, call.signal, end.signal]);
  const processes = new Set<Promise<ProcessResult>>();
  try {
    const deadlineMs = options.clock.monotonicMs() + options.timeoutMs;
    const context = createContext(call, options, { signal, processes, deadlineMs });
    const work = Promise.resolve().then(() =>
      operation.definition.run(structuredClone(call.payload) as never, context),
    );
    const deadline = rejectWhenLate(options, processes, end.signal);
    // The loser of the race is abandoned; its rejection must not end the process.
    work.catch(() => {});
    deadline.catch(() => {});
    return toJson(await Promise.race([work, deadline, rejectWhenStopped(running, end.signal)]));
  } catch (error) {
    if (error instanceof Problem) throw error;
    log.warn({ err: error }, 'an operation of a service failed');
    throw new Problem('upstream_failed', 'action_failed', 'The service failed during this call.', {
      cause: error,
    });
  } finally {
    end.abort();
  }
}

function createContext(
  { requestId, sandbox: settings, log }: OperationCall,
  { prepareProgram, clock }: OperationOptions,
  {
    signal,
    processes,
    deadlineMs,
  }: { signal: AbortSignal; processes: Set<Promise<ProcessResult>>; deadlineMs: number },
): ServiceCallContext {
  return {
    signal,
    requestId,
    log,
    refuse,
    program(command, { input } = {}) {
      const result = prepareProgram({ command, settings }).then((program) => {
        const timeoutMs = Math.max(0, deadlineMs - clock.monotonicMs());
        const limits = { maxOutputBytes: maxProcessOutputBytes, timeoutMs };
        return runProcess({ ...program, input, ...limits, signal, clock });
      });
      processes.add(result);
      result.catch(() => {});
      return result;
    },
  };
}

/** Rejects at the deadline of the call, after its processes have ended. */
async function rejectWhenLate(
  { timeoutMs, clock }: OperationOptions,
  processes: ReadonlySet<Promise<ProcessResult>>,
  callEnd: AbortSignal,
): Promise<never> {
  await clock.sleep(timeoutMs, callEnd);
  if (processes.size > 0)
    await settlesWithin(Promise.allSettled(processes), { ms: processEndMs, clock, signal: callEnd });
  await clock.sleep(lastResultMs, callEnd);
  throw new Problem(
    'upstream_timeout',
    'action_timeout',
    `The call did not end within ${timeoutMs / 1000} seconds.`,
  );
}

function checkPayload({ check }: Operation, payload: Readonly<Record<string, unknown>>): void {
  const result = check(payload);
  if (result.ok) return;
  throw new Problem('bad_request', 'invalid_request', 'The payload does not match the input schema.', {
    param: 'payload',
    details: result.details.map(({ path, message }) => ({
      path: path === '' ? 'payload' : `payload.${path}`,
      message,
    })),
  });
}

function rejectWhenStopped(running: AbortSignal, callEnd: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const rejectCall = (): void =>
      reject(
        new Problem('unavailable', 'service_stopped', 'The service was stopped during this call.', {
          headers: { 'retry-after': '1' },
        }),
      );
    if (running.aborted) rejectCall();
    else running.addEventListener('abort', rejectCall, { once: true, signal: callEnd });
  });
}

// Throws for a result that JSON cannot represent.
function toJson(result: unknown): unknown {
  const text = JSON.stringify(result ?? null);
  if (text === undefined) throw new TypeError(`A ${typeof result} is not JSON.`);
  if (Buffer.byteLength(text) > maxResultBytes)
    throw new Problem(
      'upstream_failed',
      'action_failed',
      `The result is larger than ${maxResultBytes / 1024 / 1024} MiB.`,
    );
  return JSON.parse(text) as unknown;
}
