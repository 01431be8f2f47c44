//! Scalar functions that plans use and statements cannot call.

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result as DataFusionResult, internal_err};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

type Call = dyn Fn(&[ColumnarValue]) -> DataFusionResult<ColumnarValue> + Send + Sync;

/// A scalar function that plans use and statements cannot call.
pub(in crate::query) struct PlanFunction {
    name: &'static str,
    /// Tells functions of one name apart.
    key: String,
    /// The field of the result; `None` = the field of the first argument.
    returns: Option<FieldRef>,
    signature: Signature,
    call: Box<Call>,
    /// What other rules may know of the function.
    data: Option<Arc<dyn Any + Send + Sync>>,
}

impl PlanFunction {
    /// Makes a function that returns a value like its first argument.
    pub(in crate::query) fn like_argument(
        name: &'static str,
        key: String,
        call: impl Fn(&[ColumnarValue]) -> DataFusionResult<ColumnarValue> + Send + Sync + 'static,
    ) -> PlanFunction {
        let signature = Signature::variadic_any(Volatility::Immutable);
        PlanFunction { name, key, returns: None, signature, call: Box::new(call), data: None }
    }

    /// Makes a function of arrays.
    pub(in crate::query) fn of_arrays(
        name: &'static str,
        key: String,
        returns: FieldRef,
        call: impl Fn(&[ArrayRef]) -> DataFusionResult<ArrayRef> + Send + Sync + 'static,
    ) -> PlanFunction {
        let call = make_scalar_function(call, Vec::new());
        PlanFunction { returns: Some(returns), ..PlanFunction::like_argument(name, key, call) }
    }

    /// Adds what other rules may know of the function.
    pub(in crate::query) fn with_data(self, data: Arc<impl Any + Send + Sync>) -> PlanFunction {
        PlanFunction { data: Some(data), ..self }
    }

    /// Returns the data of the function, if it is of this type.
    pub(in crate::query) fn data<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(self.data.as_ref()?).downcast().ok()
    }

    pub(in crate::query) fn over(self, args: Vec<Expr>) -> Expr {
        ScalarUDF::new_from_impl(self).call(args)
    }
}

impl ScalarUDFImpl for PlanFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        internal_err!("{}: the result has a field", self.name)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> DataFusionResult<FieldRef> {
        match self.returns.as_ref().or(args.arg_fields.first()) {
            Some(field) => Ok(field.clone()),
            None => internal_err!("{}: expected an argument", self.name),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        (self.call)(&args.args)
    }
}

impl PartialEq for PlanFunction {
    fn eq(&self, other: &PlanFunction) -> bool {
        (self.name, &self.key) == (other.name, &other.key)
    }
}

impl Eq for PlanFunction {}

impl Hash for PlanFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.name, &self.key).hash(state);
    }
}

impl fmt::Debug for PlanFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.key)
    }
}
