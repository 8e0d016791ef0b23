// The interface of the telemetry for other modules.
export { createUpstreamObserver } from './upstream-observer.ts';
export { observeLedger } from './ledger-observer.ts';
