// The handler of OpenAI's responses format.
import type { ResponseAnswer, ResponseEvent, ResponseRequest } from '../../contract/gateway/types.gen.ts';
import { id } from '../../kernel/ids.ts';
import { Problem } from '../../kernel/problem.ts';
import type { AiContext, AiHandlers } from './ai-context.ts';
import { checkEffort } from './catalog/reasoning.ts';
import * as formats from './formats/passthrough/formats.ts';
import { serializeResponse, serializeResponseEvents } from './formats/responses/answer.ts';
import { toModelCall } from './formats/responses/request.ts';
import { answerTranslated, type TranslatedFormat } from './translated-format.ts';

const responses: TranslatedFormat<ResponseRequest, ResponseAnswer, ResponseEvent> = {
  passthrough: formats.responses,
  effort: (model, body) => checkEffort(model, body.reasoning?.effort, 'reasoning.effort'),
  toModelCall,
  serializeAnswer: (answer, options) => serializeResponse(answer, { ...options, responseId: id('resp') }),
  serializeStream: (parts, options) => serializeResponseEvents(parts, { ...options, responseId: id('resp') }),
  // Clients of this format read the event's type, or its member `error`.
  errorEvent: ({ error }, count) => ({
    type: 'error',
    code: error.code,
    message: error.message,
    param: error.param,
    error,
    sequence_number: count,
  }),
};

export function responseHandlers(context: AiContext): Pick<AiHandlers, 'ai.createResponse'> {
  return {
    'ai.createResponse': async (call) => {
      refuseBackground(call.body);
      return answerTranslated(context, responses, { call });
    },
  };
}

// A background answer arrives outside of the call, so the gateway could not meter it.
function refuseBackground({ background }: ResponseRequest): void {
  if (background !== true) return;
  throw new Problem(
    'impossible',
    'unsupported_by_model',
    'Answers in the background are not supported; leave background out.',
    { param: 'background' },
  );
}
