// The handler of `POST /v1/ai/text`: a whole answer as one message.
import { id } from '../../../kernel/ids.ts';
import {
  type AiContext,
  type AiHandlers,
  firstByteDeadlineMs,
  openBill,
  settleAndRender,
} from '../calls/context.ts';
import { callModel } from '../calls/call.ts';
import { type CatalogModel, viewerOf } from '../catalog/catalog.ts';
import { effortOrDefault } from '../catalog/reasoning.ts';
import {
  checkAnswerFormat,
  checkLocalInput,
  checkPromptInputs,
} from '../formats/translation/input-checks.ts';
import { checkToolValues } from '../formats/translation/tool-values.ts';
import * as text from '../formats/text.ts';
import { checkDefinitions } from '../formats/tool-definitions.ts';
import { requirePrice } from '../metering/bound.ts';
import { sizeOf } from '../metering/measure.ts';
import { generate } from '../calls/model-calls.ts';
import { sessionHash } from '../upstream/session-hash.ts';

export function textHandlers(context: AiContext): Pick<AiHandlers, 'ai.generateText'> {
  const { catalog } = context;
  return {
    'ai.generateText': async (call) => {
      const { identity, body, signal } = call;
      checkDefinitions(body);
      const chain = catalog.chain(viewerOf(identity), body.model, 'text');
      const hub = text.toModelCall(body, signal);
      checkToolValues(hub);
      const bill = openBill(context, call, { action: 'text', demand: demandOf(body) });
      const { answer, model, attempts } = await callModel(
        {
          chain,
          signal,
          session: () => sessionHash(call),
          deadlineMs: firstByteDeadlineMs(context, false),
          check(candidate: CatalogModel) {
            requirePrice(candidate, ['input', 'output']);
            // The system prompt is a member of its own, so `messages` is counted without it.
            const messages = hub.prompt.filter(({ role }) => role !== 'system');
            checkPromptInputs(candidate, messages, 'messages');
            checkLocalInput(candidate, body);
            checkAnswerFormat(candidate, hub.responseFormat, 'response_format');
          },
          effort: (candidate) => effortOrDefault(candidate, body.reasoning_effort),
          send: (attempt) => generate(context, attempt, { hub, bill }),
        },
        { ...context, bill },
      );
      const messageId = id('msg');
      // Without headers: the body itself names the model, the attempts and the credits.
      const { body: message } = await settleAndRender(call, bill, (credits) => ({
        body: text.serializeMessage(answer, {
          id: messageId,
          result: { model: model.id, attempts: [...attempts], credits },
        }),
        headers: {},
      }));
      return { status: 200, body: message };
    },
  };
}

function demandOf(body: Parameters<AiHandlers['ai.generateText']>[0]['body']) {
  const tokens = body.max_output_tokens;
  const member = 'max_output_tokens';
  return {
    size: sizeOf(body, 'text'),
    hasTools: (body.tools?.length ?? 0) > 0,
    limit: tokens === undefined ? undefined : { tokens, member },
    limitMember: member,
  };
}
