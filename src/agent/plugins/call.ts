// One call of an action, come what may: input that does not fit, a throw, a hang and a result that is no JSON all
// end in an outcome with a text for the model, and none of them costs more than this call.
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Tool } from './registry.ts';

export type ActionOutcome = { ok: true; output: unknown } | { ok: false; message: string };

export interface ActionCall {
  tool: Tool;
  input: unknown;
  workspace: string;
  /** Aborted when the run ends. */
  signal: AbortSignal;
  /** After this the call has failed, whether or not the action heeds its signal. */
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
    const faults = verdict.details.map(({ path, message }) => `${path === '' ? 'the input' : path} ${message}`).join('; ');
    return { ok: false, message: `The input does not fit: ${faults}.` };
  }
  const end = new AbortController();
  try {
    const signal = AbortSignal.any([call.signal, end.signal]);
    const context = { signal, workspace: call.workspace, log };
    // The promise of a late action is abandoned; whatever becomes of it must not end the process.
    const work = Promise.resolve(tool.definition.run(structuredClone(call.input) as never, context));
    work.catch(() => {});
    const deadline = call.clock.sleep(call.timeoutMs, end.signal).then(
      () => 'late' as const,
      () => 'ended' as const,
    );
    const first = await Promise.race([work.then((result) => ({ result })), deadline, aborted(call.signal, end.signal)]);
    if (first === 'ended') return { ok: false, message: 'The run was ended before the action was.' };
    if (first === 'late') {
      log.warn({ tool: tool.name, timeoutMs: call.timeoutMs }, 'an action was late');
      return { ok: false, message: `The action did not end within ${call.timeoutMs / 1000} seconds.` };
    }
    return asOutcome(first.result);
  } catch (thrown) {
    if (thrown instanceof Problem) return { ok: false, message: thrown.message };
    log.warn({ tool: tool.name, error: thrown }, 'an action failed');
    return { ok: false, message: 'The action failed.' };
  } finally {
    end.abort();
  }
}

// The run's signal outlives the call, so the listener is taken off it again when the call is over.
function aborted(run: AbortSignal, over: AbortSignal): Promise<'ended'> {
  return new Promise((resolve) => {
    if (run.aborted) return resolve('ended');
    run.addEventListener('abort', () => resolve('ended'), { once: true, signal: over });
  });
}

// Through JSON and back, so that the log holds exactly what the model is shown; what does not survive throws.
function asOutcome(result: unknown): ActionOutcome {
  const text = JSON.stringify(result ?? null) ?? 'null';
  if (Buffer.byteLength(text) > maximumOutputBytes) {
    return { ok: false, message: `The result of the action is larger than ${maximumOutputBytes / 1024} KiB.` };
  }
  return { ok: true, output: JSON.parse(text) };
}
