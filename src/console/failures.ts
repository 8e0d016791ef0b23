// Turns failures of calls to the agent into the console's answers and into the states that the overview
// shows.
import { AgentError } from '@townhall/agent';
import { Problem } from '../kernel/problem.ts';
import { TokenFileError } from './agent-link.ts';
import type { AgentView } from './pages/shared/views.ts';

/** The agent accepted the connection but did not answer in time. */
export class AgentSilentError extends Error {
  override name = 'AgentSilentError';
  constructor({ afterMs, isRead }: { afterMs: number; isRead: boolean }) {
    super(
      `The agent did not answer within ${afterMs / 1_000} seconds.${isRead ? '' : ' It may have executed the call.'}`,
    );
  }
}

/**
 * The console's answer for a failed call. The agent's error is passed on unchanged, except a 401, which
 * a page would take for a rejection of its own key.
 */
export function describeFailure(error: unknown, requestId: string): { status: number; body: object } {
  if (error instanceof AgentSilentError)
    return { status: 504, body: errorBody('agent_silent', error.message, requestId) };
  if (error instanceof TokenFileError)
    return { status: 502, body: errorBody('agent_refused', error.message, requestId) };
  // The agent's client and `listRuns` throw it for malformed members.
  if (error instanceof TypeError)
    return { status: 400, body: errorBody('invalid_request', error.message, requestId) };
  if (!AgentError.isInstance(error)) throw error;
  if (error.status === 0)
    return { status: 503, body: errorBody('agent_unreachable', 'The agent does not answer.', requestId) };
  if (error.status === 401)
    return {
      status: 502,
      body: errorBody(
        'agent_refused',
        'The agent does not accept the console’s token.',
        error.requestId ?? requestId,
      ),
    };
  const { code, message, param, details } = error;
  return {
    // An answer that the client cannot read has the agent's status, which may be that of a success.
    status: error.status < 400 ? 502 : error.status,
    body: {
      error: {
        code,
        message,
        param,
        request_id: error.requestId ?? requestId,
        ...(details.length === 0 ? {} : { details }),
      },
    },
  };
}

function errorBody(code: string, message: string, requestId: string): object {
  return { error: { code, message, param: null, request_id: requestId } };
}

/** Why the agent is unavailable now. Throws any other error. */
export function describeLoss(error: unknown, url: string): AgentView {
  if (error instanceof AgentSilentError) return { state: 'silent', url, message: error.message };
  if (error instanceof TokenFileError) return { state: 'refused', url, message: error.message };
  if (!AgentError.isInstance(error) && !(error instanceof Problem)) throw error;
  if (error.status === 401)
    return {
      state: 'refused',
      url,
      message: 'The agent does not accept the console’s token. Does the token file belong to another agent?',
    };
  return {
    state: 'unreachable',
    url,
    message: error.status === 0 ? 'The agent does not answer.' : error.message,
  };
}
