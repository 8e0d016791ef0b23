// The routes of services: list, control, commands and actions.
import type { Service } from '../service.ts';
import type { ServiceDirectory } from './directory.ts';

export function services({ directory }: { directory: ServiceDirectory }): Service<'services'> {
  return {
    name: 'services',
    handlers: {
      'services.listServices': async () => ({
        status: 200,
        body: { success: true, services: directory.list() },
      }),
      'services.controlService': async ({ body: { serviceName, action } }) => {
        const { changed: hasChanged, service } =
          action === 'status'
            ? { changed: false, service: directory.view(serviceName) }
            : await directory.control(serviceName, action);
        return { status: 200, body: { success: true, action, changed: hasChanged, service } };
      },
      'services.callCommand': async ({
        body: { serviceName, command, payload = {} },
        requestId,
        signal,
        log,
      }) => {
        const result = await directory.call({
          service: serviceName,
          kind: 'command',
          name: command,
          payload,
          requestId,
          signal,
          log,
        });
        return { status: 200, body: { success: true, serviceName, result } };
      },
      'services.callAction': async ({ path: { serviceName, actionName }, body, requestId, signal, log }) => {
        const result = await directory.call({
          service: serviceName,
          kind: 'action',
          name: actionName,
          payload: body,
          requestId,
          signal,
          log,
        });
        return { status: 200, body: { success: true, serviceName, result } };
      },
    },
  };
}
