export { payments, type Payments } from './payments.ts';
export { paymentsStore, type PaymentsStore } from './store.ts';
