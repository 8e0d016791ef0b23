// The error for a caller whose run was executed by another process, rebuilt from the
// log: the same code and status as from the process that executed it.
import { Problem, type ProblemKind } from '../../../kernel/problem.ts';
import type { ProblemCode } from '../../../contract/problem-code.gen.ts';
import type { RunRecord } from './store.ts';

const kinds = {
  insufficient_credits: 'insufficient_credits',
  model_not_found: 'not_found',
  unsupported_by_model: 'impossible',
  unsupported_reasoning_effort: 'impossible',
  upstream_refused: 'impossible',
  step_limit_reached: 'impossible',
  rate_limited: 'rate_limited',
  not_ready: 'unavailable',
  draining: 'unavailable',
  run_interrupted: 'unavailable',
  database_unavailable: 'unavailable',
  run_cancelled: 'conflict',
  plugin_refused: 'forbidden',
  workspace_unavailable: 'conflict',
  upstream_failed: 'upstream_failed',
  upstream_truncated: 'upstream_failed',
  provider_credentials: 'upstream_failed',
  upstream_timeout: 'upstream_timeout',
} as const satisfies Partial<Record<ProblemCode, ProblemKind>>;

/** Null for a deleted run. */
export function runFailure(run: Pick<RunRecord, 'status' | 'error'> | null, runId: string): Problem {
  const message = `${run?.error?.message ?? 'The run failed for an unknown reason.'} (${runId})`;
  if (run?.status === 'cancelled') return new Problem('conflict', 'run_cancelled', message);
  if (run?.status === 'interrupted') return new Problem('unavailable', 'run_interrupted', message);
  const code = run?.error?.code ?? '';
  if (!Object.hasOwn(kinds, code)) return new Problem('internal', 'internal_error', message);
  const problemCode = code as keyof typeof kinds;
  return new Problem(kinds[problemCode], problemCode, message);
}
