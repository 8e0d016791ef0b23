// The description of a coding agent: the files that configure it, and the format of its calls.
import type { FileEdit } from './files/file-edit.ts';

/** The gateway as a tool sees it. */
export interface Connection {
  /** The address without a trailing slash. */
  url: string;
  /** The API key. */
  token: string;
  model: string;
  home: string;
  env: Readonly<Record<string, string | undefined>>;
}

export type CallFormat = 'messages' | 'responses' | 'chat-completions' | 'gemini';

export interface Tool {
  id: string;
  title: string;
  format: CallFormat;
  /** Chooses the model when there is no --model: the first listed model that matches. */
  preferredModel: RegExp;
  edits(connection: Connection): FileEdit[];
  /** The command that starts the tool, and further lines of advice. */
  start(connection: Connection): readonly string[];
}
