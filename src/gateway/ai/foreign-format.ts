// The foreign formats that pass through to providers which speak them: for each, where a provider takes it, how an
// answer is known to be one, where the model's name stands in it, and how its streams end.
import type { ForeignFormat as FormatName } from './models-file.ts';
import type { EndRule } from './upstream/events.ts';

export interface ForeignFormat {
  name: FormatName;
  /** Behind the provider's base address. */
  path: string;
  endRule: EndRule;
  /** Whether a whole answer is one. */
  isAnswer: (value: Readonly<Record<string, unknown>>) => boolean;
  /** Members of an event that hold the model's name one level down. */
  nestedIn: readonly string[];
  /** Members that limit the output; the first is added where none is sent, unless the provider names another. */
  limits: readonly string[];
  /** Whether the provider's own name of the limit (`output_limit_member`) belongs to this format. */
  usesProviderLimit: boolean;
  /** Whether `stream_options.include_usage` asks for the usage of a stream. */
  asksForUsage: boolean;
  /** The frame that ends a stream which failed midway. `body` is the rendered Problem. */
  errorFrame: (body: { error: { code: string; message: string; param: string | null } }) => string;
}

const dataFrame: ForeignFormat['errorFrame'] = (body) => `data: ${JSON.stringify(body)}\n\n`;

export const chat: ForeignFormat = {
  name: 'chat',
  path: '/chat/completions',
  endRule: 'done',
  isAnswer: ({ choices }) => Array.isArray(choices),
  nestedIn: [],
  limits: ['max_tokens', 'max_completion_tokens'],
  usesProviderLimit: true,
  asksForUsage: true,
  errorFrame: dataFrame,
};

export const embeddings: ForeignFormat = {
  name: 'embeddings',
  path: '/embeddings',
  endRule: 'done',
  isAnswer: ({ data }) => Array.isArray(data),
  nestedIn: [],
  limits: [],
  usesProviderLimit: false,
  asksForUsage: false,
  errorFrame: dataFrame,
};

export const responses: ForeignFormat = {
  name: 'responses',
  path: '/responses',
  endRule: 'responses',
  isAnswer: ({ object, output }) => object === 'response' && Array.isArray(output),
  nestedIn: ['response'],
  limits: ['max_output_tokens'],
  usesProviderLimit: false,
  asksForUsage: false,
  // Its clients look at the event's type, or at a member `error`.
  errorFrame: ({ error }) => `event: error\ndata: ${JSON.stringify({ type: 'error', code: error.code, message: error.message, param: error.param, error })}\n\n`,
};

export const messages: ForeignFormat = {
  name: 'messages',
  path: '/messages',
  endRule: 'messages',
  isAnswer: ({ type, content }) => type === 'message' && Array.isArray(content),
  nestedIn: ['message'],
  limits: ['max_tokens'],
  usesProviderLimit: false,
  asksForUsage: false,
  errorFrame: ({ error }) => `event: error\ndata: ${JSON.stringify({ type: 'error', error })}\n\n`,
};

export const rerank: ForeignFormat = {
  name: 'rerank',
  path: '/rerank',
  endRule: 'done',
  isAnswer: ({ results, data }) => Array.isArray(results) || Array.isArray(data),
  nestedIn: [],
  limits: [],
  usesProviderLimit: false,
  asksForUsage: false,
  errorFrame: dataFrame,
};
