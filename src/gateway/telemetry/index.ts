// The interface of the telemetry for other modules.
export { createUpstreamObserver, type UpstreamAttempt, type UpstreamObserver } from './upstream-observer.ts';
export { observeLedger } from './ledger-observer.ts';
