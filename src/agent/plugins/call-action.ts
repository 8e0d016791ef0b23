// One call of an action. Invalid input, an exception, a hang and a result that is not JSON each end
// in an outcome with a message for the model; none of them affects more than this call.
import { withTimeout } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { refuse } from '../refusal.ts';
import { listErrors, type Tool } from './tool.ts';

/** `message` goes to the model; `problem` reports the same failure to a caller over HTTP. */
export type ActionOutcome = { ok: true; output: unknown } | { ok: false; message: string; problem: Problem };

export interface ActionCall {
  tool: Tool;
  input: unknown;
  workspace: string;
  sessionId?: string;
  /**
   * Whether a person or the policy for unattended runs has approved the call. An action that needs
   * approval is refused otherwise.
   */
  isApproved?: boolean;
  /** Aborted when the run ends. */
  signal: AbortSignal;
  /**
   * The call fails after this time, whether or not the action reacts to its signal;
   * an action may declare a longer timeout.
   */
  timeoutMs: number;
  /** Called with each text that the action shows while it runs. */
  showOutput?(text: string): void;
  clock: Clock;
  log: Log;
}

// The model gets the result again in every later step, so a larger one would displace everything
// else.
const maxOutputBytes = 512 * 1024;

/** Runs the action with a copy of the input, so that it cannot change what is recorded. Never throws. */
export async function callAction(call: ActionCall): Promise<ActionOutcome> {
  const { tool, log } = call;
  try {
    await requireCallable(call);
    return { ok: true, output: toOutput(tool, await runAction(call), log) };
  } catch (error) {
    if (error instanceof Problem) return { ok: false, message: error.message, problem: error };
    log.warn({ tool: tool.name, err: error }, 'an action failed');
    const problem = new Problem('upstream_failed', 'action_failed', 'The action failed.', { cause: error });
    return { ok: false, message: problem.message, problem };
  }
}

async function requireCallable({ tool, input, workspace, isApproved = false }: ActionCall): Promise<void> {
  const result = tool.check(input);
  if (!result.ok) {
    throw new Problem(
      'bad_request',
      'invalid_request',
      `The input does not match the schema of the action: ${listErrors(result.details, 'the input')}.`,
      {
        // An HTTP request has the input in its member `payload`.
        param: 'payload',
        details: result.details.map(({ path, message }) => ({
          path: path === '' ? 'payload' : `payload.${path}`,
          message,
        })),
      },
    );
  }
  const { available, reasons } = await tool.availability();
  if (!available) {
    const explanation = reasons.map((reason) => ` ${reason}`).join('');
    throw new Problem(
      'conflict',
      'plugin_unavailable',
      `The plugin "${tool.plugin}" is not available now.${explanation}`,
    );
  }
  if (!isApproved && tool.needsApproval(input, { workspace })) {
    throw new Problem(
      'forbidden',
      'approval_required',
      `${tool.name} needs the approval of a person, and this run is unattended; it was not called.`,
    );
  }
}

async function runAction(call: ActionCall): Promise<unknown> {
  const { tool, clock, log } = call;
  const ms = Math.max(call.timeoutMs, tool.definition.timeoutMs ?? 0);
  const completion = new AbortController();
  try {
    return await withTimeout(
      async (signal) =>
        tool.definition.run(structuredClone(call.input) as never, {
          signal: AbortSignal.any([signal, completion.signal]),
          workspace: call.workspace,
          sessionId: call.sessionId ?? null,
          settings: tool.settings,
          log,
          showOutput(text) {
            if (!completion.signal.aborted) call.showOutput?.(String(text));
          },
          refuse,
        }),
      { ms, error: () => timeoutProblem(ms), clock, signal: call.signal },
    );
  } catch (error) {
    if (call.signal.aborted && error === call.signal.reason)
      throw new Problem('unavailable', 'draining', 'The run ended before the action had finished.');
    if (error instanceof Problem && error.code === 'action_timeout')
      log.warn({ tool: tool.name, timeoutMs: ms }, 'an action timed out');
    throw error;
  } finally {
    completion.abort();
  }
}

function timeoutProblem(ms: number): Problem {
  return new Problem(
    'upstream_timeout',
    'action_timeout',
    `The action did not end within ${ms / 1000} seconds.`,
  );
}

// Converts the result to JSON and back, so that the session's log contains exactly what the model
// gets. Throws for a result that JSON cannot represent.
function toOutput(tool: Tool, result: unknown, log: Log): unknown {
  const text = JSON.stringify(result ?? null);
  if (text === undefined) throw new TypeError(`A ${typeof result} is not JSON.`);
  if (Buffer.byteLength(text) > maxOutputBytes) {
    throw new Problem(
      'upstream_failed',
      'action_failed',
      `The result of the action is larger than ${maxOutputBytes / 1024} KiB.`,
    );
  }
  const output: unknown = JSON.parse(text);
  const check = tool.checkOutput?.(output) ?? { ok: true };
  if (check.ok) return output;
  log.warn(
    { tool: tool.name, details: check.details },
    'the result of an action does not match its output schema',
  );
  throw new Problem(
    'upstream_failed',
    'action_failed',
    'The result of the action does not match its output schema.',
  );
}
