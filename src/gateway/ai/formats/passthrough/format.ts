// The foreign formats that pass through to providers which speak them: for each, where a provider takes it, how an
// answer is known to be one, where the model's name stands in it, and how its streams end.
import {
  chatClaim,
  messagesClaim,
  type ReadClaim,
  rerankClaim,
  responsesClaim,
} from '../../metering/token-count.ts';
import type { PassthroughFormatName as FormatName } from '../../catalog/models-file.ts';
import type { EndRule } from '../../upstream/events.ts';

export interface PassthroughFormat {
  name: FormatName;
  /** Behind the provider's base address. */
  path: string;
  endRule: EndRule;
  /** Whether a whole answer is one. */
  isAnswer: (value: Readonly<Record<string, unknown>>) => boolean;
  /** Whether a whole answer says that it came to nothing; absent where the format has no words for that. */
  hasFailed?: (value: Readonly<Record<string, unknown>>) => boolean;
  /** Members of an event that hold the model's name one level down. */
  modelNestedIn: readonly string[];
  /** Members that limit the output; the first is added where none is sent, unless the provider names another. */
  limitMembers: readonly string[];
  /** Whether the provider's own name of the limit (`output_limit_member`) belongs to this format. */
  usesProviderLimit: boolean;
  /** Whether `stream_options.include_usage` asks for the usage of a stream. */
  asksForUsage: boolean;
  /** Reads the object `usage`, or what this format has in its place. */
  readClaim: ReadClaim;
  usageMember: string;
  /** The member, one level down, in which a stream also tells its usage; in one of these it is not the last word. */
  nestedUsage?: { member: string; isFinal: boolean };
  /** The members, in an event and in a whole answer, that hold what the model has said. */
  textMembers: readonly string[];
  /** The frame that ends a stream which failed midway. `body` is the rendered Problem. */
  errorFrame: (body: { error: { code: string; message: string; param: string | null } }) => string;
}

const dataFrame: PassthroughFormat['errorFrame'] = (body) => `data: ${JSON.stringify(body)}\n\n`;

export const chat: PassthroughFormat = {
  name: 'chat',
  path: '/chat/completions',
  endRule: 'done',
  isAnswer: ({ choices }) => Array.isArray(choices),
  modelNestedIn: [],
  limitMembers: ['max_tokens', 'max_completion_tokens'],
  usesProviderLimit: true,
  asksForUsage: true,
  readClaim: chatClaim,
  usageMember: 'usage',
  textMembers: ['choices'],
  errorFrame: dataFrame,
};

export const embeddings: PassthroughFormat = {
  name: 'embeddings',
  path: '/embeddings',
  endRule: 'done',
  isAnswer: ({ data }) => Array.isArray(data),
  modelNestedIn: [],
  limitMembers: [],
  usesProviderLimit: false,
  asksForUsage: false,
  readClaim: chatClaim,
  usageMember: 'usage',
  textMembers: [],
  errorFrame: dataFrame,
};

export const responses: PassthroughFormat = {
  name: 'responses',
  path: '/responses',
  endRule: 'responses',
  isAnswer: ({ object, output }) => object === 'response' && Array.isArray(output),
  hasFailed: ({ status }) => status === 'failed',
  modelNestedIn: ['response'],
  limitMembers: ['max_output_tokens'],
  usesProviderLimit: false,
  asksForUsage: false,
  readClaim: responsesClaim,
  usageMember: 'usage',
  nestedUsage: { member: 'response', isFinal: true },
  textMembers: ['delta', 'output'],
  // Its clients look at the event's type, or at a member `error`.
  errorFrame: ({ error }) =>
    `event: error\ndata: ${JSON.stringify({ type: 'error', code: error.code, message: error.message, param: error.param, error })}\n\n`,
};

export const messages: PassthroughFormat = {
  name: 'messages',
  path: '/messages',
  endRule: 'messages',
  isAnswer: ({ type, content }) => type === 'message' && Array.isArray(content),
  modelNestedIn: ['message'],
  limitMembers: ['max_tokens'],
  usesProviderLimit: false,
  asksForUsage: false,
  readClaim: messagesClaim,
  usageMember: 'usage',
  nestedUsage: { member: 'message', isFinal: false },
  textMembers: ['delta', 'content'],
  errorFrame: ({ error }) => `event: error\ndata: ${JSON.stringify({ type: 'error', error })}\n\n`,
};

export const rerank: PassthroughFormat = {
  name: 'rerank',
  path: '/rerank',
  endRule: 'done',
  isAnswer: ({ results, data }) => Array.isArray(results) || Array.isArray(data),
  modelNestedIn: [],
  limitMembers: [],
  usesProviderLimit: false,
  asksForUsage: false,
  readClaim: rerankClaim,
  usageMember: 'usage',
  textMembers: [],
  errorFrame: dataFrame,
};
