// Renders a conversation for a model. The result depends only on the log, the model and its limits, so
// repeated requests have the same bytes: providers cache prompts by their prefix.
import type { LanguageModelV3Message } from '@ai-sdk/provider';
import type { UiMessage, UiMessagePart } from '../../../../contract/agent/types.gen.ts';
import type { Conversation } from '../../event-log/conversation.ts';
import { estimateMessages } from './estimate.ts';
import { renderAnswer } from './answer.ts';
import { renderInput, type AttachmentSource, type InputView, type Omission } from './input.ts';

export type { Omission } from './input.ts';

/** The options of rendering a conversation. */
export interface PromptView extends InputView {
  model: string;
}

export interface RenderedConversation {
  messages: LanguageModelV3Message[];
  /** The tokens of each message of the conversation. */
  messageTokens: number[];
  omissions: Omission[];
}

export type RenderConversation = (
  conversation: Conversation,
  view: PromptView,
) => Promise<RenderedConversation>;

export function createPromptRenderer(source: AttachmentSource): RenderConversation {
  return async (conversation, view) => {
    const messages: LanguageModelV3Message[] = [];
    const omissions: Omission[] = [];
    if (conversation.summary !== null) messages.push(renderSummary(conversation.summary));
    const messageTokens: number[] = [];
    for (const { message } of conversation.messages) {
      const renderedMessage = await renderMessage(message, { conversation, view, source });
      messages.push(...renderedMessage.messages);
      messageTokens.push(estimateMessages(renderedMessage.messages));
      omissions.push(...renderedMessage.omissions);
    }
    return { messages, messageTokens, omissions };
  };
}

async function renderMessage(
  message: UiMessage,
  { conversation, view, source }: { conversation: Conversation; view: PromptView; source: AttachmentSource },
): Promise<{ messages: LanguageModelV3Message[]; omissions: Omission[] }> {
  if (message.role === 'user') {
    const input = await renderInput(message, view, source);
    return { messages: [input.message], omissions: input.omissions };
  }
  const { id: messageId, parts, metadata } = message;
  const isOwn = metadata?.['model'] === view.model;
  return { messages: renderParts(parts, { messageId, isOwn }, conversation, view), omissions: [] };
}

/** Renders an assistant message, finished or in progress. */
export function renderParts(
  parts: readonly UiMessagePart[],
  { messageId, isOwn }: { messageId: string | null; isOwn: boolean },
  { cut, prunedUpToSeq }: Conversation,
  { maxTextTokens }: PromptView,
): LanguageModelV3Message[] {
  const skippedSteps = cut !== null && cut.messageId === messageId ? cut.steps : 0;
  return renderAnswer(parts, { isOwn, skippedSteps, prunedUpToSeq, maxTextTokens });
}

function renderSummary(summary: string): LanguageModelV3Message {
  return {
    role: 'user',
    content: [{ type: 'text', text: `A summary of the conversation so far:\n\n${summary}` }],
  };
}
