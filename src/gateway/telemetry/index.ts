export { createUpstreamObserver, type UpstreamAttempt, type UpstreamObserver } from './upstream-observer.ts';
export { observeLedger } from './ledger-observer.ts';
