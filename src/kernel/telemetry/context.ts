// The current request and span, carried by AsyncLocalStorage.
import type { RequestScope } from '../http/observer.ts';
import type { Span } from './traces.ts';

export interface TelemetryContext {
  request: RequestScope | undefined;
  span: Span | undefined;
}
