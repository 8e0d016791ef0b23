// The rules of each translated format for the members of a request, as data: those that reach a model
// of the hub, hints that cause a warning, and members whose values are rejected with a message of their
// own. Members without a rule are rejected. A test compares the guide's table of members with these rules.
import { labelMembers } from './chat-completions/dropped-members.ts';
import { supportedMembers as chatMembers } from './chat-completions/request.ts';
import { hintMembers as messageHints, supportedMembers as messageMembers } from './messages/request.ts';
import {
  hintMembers as responseHints,
  refusals as responseRefusals,
  supportedMembers as responseMembers,
  usualValues,
} from './responses/supported-members.ts';

export interface MemberRules {
  supported: readonly string[];
  hints: readonly string[];
  /**
   * Members that do not reach a model and have values that are rejected with a message of their own. Chat
   * and messages list such members under `supported`.
   */
  refusals: readonly string[];
}

export const memberRules: Readonly<Record<'chat' | 'responses' | 'messages', MemberRules>> = {
  chat: { supported: [...chatMembers], hints: [...labelMembers], refusals: [] },
  responses: {
    supported: [...responseMembers],
    hints: Object.keys(responseHints),
    refusals: [...new Set([...Object.keys(responseRefusals), ...Object.keys(usualValues)])],
  },
  messages: { supported: [...messageMembers], hints: Object.keys(messageHints), refusals: [] },
};
