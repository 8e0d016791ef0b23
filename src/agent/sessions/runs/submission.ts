// Types of the admission of an input: the submission, the caller's receipt, and the run that starts.
import type { UiMessage } from '../../../contract/agent/types.gen.ts';
import type { DecodedAttachment } from '../attachments/files.ts';
import type { NewSession, SessionLocator, SessionRecord } from '../event-log/session-store.ts';
import type { Delivery, LeaseHolder, Receipt } from './store.ts';

/** An input with all its ids, which are generated beforehand, so that its admission can be repeated. */
export interface Submission {
  session: SessionLocator;
  /** The session to create when it does not exist. */
  create: NewSession | null;
  runId: string;
  queueItemId: string;
  delivery: Delivery;
  origin: string;
  /** Null for a compaction, and for a run that answers an earlier input again. */
  input: {
    messageId: string;
    message: UiMessage;
    preview: string;
    files: readonly DecodedAttachment[];
  } | null;
  /** The answer that a new answer to an earlier input replaces. */
  replaces?: Replacement | undefined;
  /** The message that the model will write. */
  messageId: string | null;
  model: string | null;
  reasoningEffort: string | null;
  /** The caller's idempotency key, and the hash of the input's content. */
  promptId: string | null;
  promptHash: string | null;
  /** How long the input may wait in the queue; null for no limit. */
  expiresInMs: number | null;
  /** The request id of the call with an Idempotency-Key. */
  requestId: string | null;
}

/** An input that is answered again, and what that answer replaces. */
export interface Replacement {
  inputMessageId: string;
  messageIds: readonly string[];
  /** The newest seq of the session when the messages were chosen. */
  atSeq: number;
}

export function inputMessageIdOf({ input, replaces }: Pick<Submission, 'input' | 'replaces'>): string | null {
  return input?.messageId ?? replaces?.inputMessageId ?? null;
}

export interface Admission {
  session: SessionRecord;
  receipt: Receipt;
  /** Whether an input with the same id was accepted before, whose receipt this is. */
  isRepeated: boolean;
  /** The run to execute now; its start is in the log already. */
  started: StartedRun | null;
  /** The run to abort, because this input interrupts it. */
  interrupts: string | null;
  /** The run that takes this input with its next step. */
  steers: string | null;
}

export interface StartedRun {
  session: SessionRecord;
  runId: string;
  messageId: string | null;
  model: string;
  reasoningEffort: string | null;
  delivery: Delivery;
  origin: string;
  /** The whole conversation when the input is the first of its session; null when the log has to be read. */
  input: UiMessage | null;
  /** The seq of the last event of its start. */
  seq: number;
}

export interface AdmissionRules {
  agentId: string;
  holder: LeaseHolder;
  defaultModel: string;
  /** The maximum number of inputs that wait in one session. */
  maxWaiting: number;
  /** The maximum number of inputs of all sessions that wait for a free place. */
  maxQueuedRuns: number;
  /** Whether this process has a free place for one more run, and no earlier input waits for it. */
  mayStart(): boolean;
  /** Called before a run is written that this process will execute. */
  claim(runId: string): void;
  /** Called when a claimed run was not written. */
  release(runId: string): void;
}
