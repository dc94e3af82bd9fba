::core::compile_error! {
    "which aggregate does `OrderPaid` belong to? no field is named `id` or `.._id`\n\nhelp: mark the field with `#[outbox(aggregate_id)]`, or write `#[outbox(aggregate = \"order-{currency}\")]`, or `#[outbox(aggregate = none)]` if it belongs to none"
}
#[automatically_derived]
impl<C> ::outbox::__private::OutboxEvent for OrderPaid<C>
where
    C: Currency,
{
    const TYPES: ::outbox::__private::TypeSet = ::outbox::__private::TypeSet::Any(&[]);
    fn meta(&self) -> &'static ::outbox::__private::EventMeta {
        loop {}
    }
    fn aggregate_id(
        &self,
    ) -> ::outbox::__private::Option<::outbox::__private::Cow<'_, str>> {
        loop {}
    }
    fn encode(
        &self,
        _: &dyn ::outbox::__private::Codec,
    ) -> ::outbox::__private::OutboxResult<::outbox::__private::Vec<u8>> {
        loop {}
    }
}
#[automatically_derived]
impl<C> ::outbox::__private::DecodeEvent for OrderPaid<C>
where
    C: Currency,
    for<'__de> Self: ::outbox::__private::Owned<'__de>,
{
    fn decode(
        _: &::outbox::__private::Message,
        _: &::outbox::__private::Codecs,
    ) -> ::outbox::__private::OutboxResult<Self> {
        loop {}
    }
}
