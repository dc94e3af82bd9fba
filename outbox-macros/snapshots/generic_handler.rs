#[allow(clippy::unused_async, reason = "a handler's form is given")]
async fn track<C: Currency>(_: OrderPaid<C>) {}
#[doc(hidden)]
#[allow(non_camel_case_types, reason = "it has the function's name")]
struct track<C: Currency> {
    marker: ::outbox::__private::PhantomData<fn() -> (C,)>,
}
#[automatically_derived]
impl<C: Currency, __DB: ::outbox::__private::Backend> ::outbox::__private::Handler<__DB>
for track<C> {
    const VTABLE: ::outbox::__private::HandlerVTable<__DB> = ::outbox::__private::HandlerVTable {
        name: "track",
        consumer: "track",
        aliases: &[],
        types: <OrderPaid<C> as ::outbox::__private::EventParam>::TYPES,
        batched: <OrderPaid<C> as ::outbox::__private::EventParam>::BATCHED,
        effect: ::outbox::__private::Effect::External,
        options: ::outbox::__private::HandlerOptions {
            retry: ::outbox::__private::Retry {
                max_attempts: ::outbox::__private::Retry::DEFAULT.max_attempts,
                base: ::outbox::__private::Retry::DEFAULT.base,
                multiplier: ::outbox::__private::Retry::DEFAULT.multiplier,
                max: ::outbox::__private::Retry::DEFAULT.max,
                jitter: ::outbox::__private::Retry::DEFAULT.jitter,
            },
            timeout: ::outbox::__private::HandlerOptions::DEFAULT.timeout,
            on_dead: ::outbox::__private::HandlerOptions::DEFAULT.on_dead,
            ordered: ::outbox::__private::HandlerOptions::DEFAULT.ordered,
            group: ::outbox::__private::HandlerOptions::DEFAULT.group,
            batch: ::outbox::__private::HandlerOptions::DEFAULT.batch,
            concurrency: ::outbox::__private::HandlerOptions::DEFAULT.concurrency,
            lease: ::outbox::__private::HandlerOptions::DEFAULT.lease,
            start_from: ::outbox::__private::HandlerOptions::DEFAULT.start_from,
            rate: ::outbox::__private::HandlerOptions::DEFAULT.rate,
            inbox: ::outbox::__private::HandlerOptions::DEFAULT.inbox,
        },
        site: ::outbox::__private::Site::new(
            ::outbox::__private::module_path!(),
            ::outbox::__private::file!(),
            ::outbox::__private::line!(),
        ),
        check: |_| { ::outbox::__private::Result::Ok(()) },
        call: |ctx| ::outbox::__private::Box::pin(async move {
            let __parameter0 = ::outbox::__private::take_event::<
                OrderPaid<C>,
                __DB,
            >(ctx)?;
            let __returned = track::<C>(__parameter0).await;
            let __returned = {
                #[allow(unused_imports, reason = "one of them is needed")]
                use ::outbox::__private::{UnlessClassified as _, WhenClassified as _};
                (&::outbox::__private::Returned(&__returned))
                    .how()
                    .classified(__returned)
            };
            ::outbox::__private::HandlerReturn::into_result(__returned)
        }),
    };
}
::outbox::__submit_sqlite! {
    track < Usd >
}
::outbox::__submit_postgres! {
    track < Usd >
}
::outbox::__submit_mysql! {
    track < Usd >
}
::outbox::__submit_sqlite! {
    track < Eur >
}
::outbox::__submit_postgres! {
    track < Eur >
}
::outbox::__submit_mysql! {
    track < Eur >
}
