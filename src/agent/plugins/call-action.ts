// One call of an action, come what may: input that does not fit, a throw, a hang and a result that is no JSON all
// end in an outcome with a text for the model, and none of them costs more than this call.
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Tool } from './managed-plugin.ts';

/** `problem` says the same as `message` to a caller over HTTP. */
export type ActionOutcome = { ok: true; output: unknown } | { ok: false; message: string; problem: Problem };

export interface ActionCall {
  tool: Tool;
  input: unknown;
  workspace: string;
  sessionId?: string;
  /** A person, or the policy for runs that nobody attends, has agreed to this call; without it an action that needs approval is refused. */
  isApproved?: boolean;
  /** Aborted when the run ends. */
  signal: AbortSignal;
  /** After this the call has failed, whether or not the action heeds its signal; an action may have a longer one of its own. */
  timeoutMs: number;
  clock: Clock;
  log: Log;
}

// A result goes to the model with every later step, so a larger one would crowd out everything else.
const maximumOutputBytes = 512 * 1024;

/** Runs the action. Never throws; the action gets a copy of the input, so it cannot change what is recorded. */
export async function callAction(call: ActionCall): Promise<ActionOutcome> {
  const { tool, log } = call;
  const verdict = tool.check(call.input);
  if (!verdict.ok) {
    const faults = verdict.details
      .map(({ path, message }) => `${path === '' ? 'the input' : path} ${message}`)
      .join('; ');
    return failed(
      new Problem('bad_request', 'invalid_request', `The input does not fit: ${faults}.`, {
        // As the caller over HTTP has written it.
        param: 'payload',
        details: verdict.details.map(({ path, message }) => ({
          path: path === '' ? 'payload' : `payload.${path}`,
          message,
        })),
      }),
    );
  }
  const { available, reasons } = await tool.availability();
  if (!available) {
    const why = reasons.length === 0 ? '' : ` ${reasons.join(' ')}`;
    return failed(
      new Problem(
        'conflict',
        'plugin_unavailable',
        `The plugin "${tool.plugin}" is not available now.${why}`,
      ),
    );
  }
  if (!call.isApproved && tool.needsApproval(call.input)) {
    return failed(
      new Problem(
        'forbidden',
        'approval_required',
        `${tool.name} needs the approval of a person, and nobody attends this run; it was not called.`,
      ),
    );
  }
  const timeoutMs = Math.max(call.timeoutMs, tool.definition.timeoutMs ?? 0);
  const end = new AbortController();
  try {
    const signal = AbortSignal.any([call.signal, end.signal]);
    const context = {
      signal,
      workspace: call.workspace,
      sessionId: call.sessionId ?? null,
      settings: tool.settings,
      log,
      refuse,
    };
    // The promise of a late action is abandoned; whatever becomes of it must not end the process.
    const work = Promise.resolve(tool.definition.run(structuredClone(call.input) as never, context));
    work.catch(() => {});
    const deadline = call.clock.sleep(timeoutMs, end.signal).then(
      () => 'late' as const,
      () => 'ended' as const,
    );
    const first = await Promise.race([
      work.then((result) => ({ result })),
      deadline,
      aborted(call.signal, end.signal),
    ]);
    if (first === 'ended')
      return failed(new Problem('unavailable', 'draining', 'The run was ended before the action was.'));
    if (first === 'late') {
      log.warn({ tool: tool.name, timeoutMs }, 'an action was late');
      return failed(
        new Problem(
          'upstream_timeout',
          'action_timeout',
          `The action did not end within ${timeoutMs / 1000} seconds.`,
        ),
      );
    }
    return asOutcome(tool, first.result, log);
  } catch (thrown) {
    if (thrown instanceof Problem) return failed(thrown);
    log.warn({ tool: tool.name, err: thrown }, 'an action failed');
    return failed(new Problem('upstream_failed', 'action_failed', 'The action failed.', { cause: thrown }));
  } finally {
    end.abort();
  }
}

function refuse(reason: string): never {
  throw new Problem('impossible', 'action_refused', String(reason).toWellFormed().slice(0, 2_000));
}

function failed(problem: Problem): ActionOutcome {
  return { ok: false, message: problem.message, problem };
}

// The run's signal outlives the call, so the listener is taken off it again when the call is over.
function aborted(run: AbortSignal, over: AbortSignal): Promise<'ended'> {
  return new Promise((resolve) => {
    if (run.aborted) return resolve('ended');
    run.addEventListener('abort', () => resolve('ended'), { once: true, signal: over });
  });
}

// Through JSON and back, so that the log holds exactly what the model is shown; what does not survive throws.
function asOutcome(tool: Tool, result: unknown, log: Log): ActionOutcome {
  const text = JSON.stringify(result ?? null) ?? 'null';
  if (Buffer.byteLength(text) > maximumOutputBytes) {
    return failed(
      new Problem(
        'upstream_failed',
        'action_failed',
        `The result of the action is larger than ${maximumOutputBytes / 1024} KiB.`,
      ),
    );
  }
  const output: unknown = JSON.parse(text);
  const verdict = tool.checkOutput?.(output);
  if (verdict && !verdict.ok) {
    log.warn(
      { tool: tool.name, details: verdict.details },
      'the result of an action does not fit its schema',
    );
    return failed(
      new Problem(
        'upstream_failed',
        'action_failed',
        'The result of the action does not fit its own schema.',
      ),
    );
  }
  return { ok: true, output };
}
