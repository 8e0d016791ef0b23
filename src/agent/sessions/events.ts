// The durable events of a session's log. Each is stored under its `seq`; what a reader needs to know of a run can
// be told from them alone, so a message is only their projection.
import type { ProblemCode } from '../../contract/problem-code.gen.ts';
import type { RunUsage, UiMessage } from '../../contract/agent/types.gen.ts';

/** How a run ended; every accepted run ends in exactly one of these. */
export type RunOutcome = 'completed' | 'failed' | 'cancelled' | 'interrupted' | 'expired';

/** What went wrong, as the log keeps it: for the owner of the session, without the exception's text. */
export interface RunError {
  code: ProblemCode;
  message: string;
}

export type SessionEvent =
  | { type: 'session.created'; kind: 'execute' }
  | { type: 'message.created'; messageId: string; role: 'user' | 'assistant' }
  | { type: 'message.completed'; messageId: string; message: UiMessage }
  | { type: 'run.started'; model: string; messageId: string }
  | { type: 'run.step.started'; step: number }
  | { type: 'run.step.ended'; step: number; finishReason: string; usage: RunUsage }
  | { type: 'tool.started'; toolCallId: string; toolName: string; input: unknown }
  | { type: 'tool.output'; toolCallId: string; output: unknown; durationMs: number }
  | { type: 'tool.failed'; toolCallId: string; toolName: string; errorText: string; durationMs: number }
  | { type: 'run.settled'; outcome: RunOutcome; usage: RunUsage; finishReason: string | null; error: RunError | null };
